//! Published tables: CSV whose head names axes of a figure and, in its last column, the unit; lines with `#` say where they come from.

/// A published table.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Where it comes from: its lines with `#`.
    pub notes: String,
    /// Keys and values of each row, and its figure.
    pub rows: Vec<(Vec<(String, String)>, f64)>,
}

impl Published {
    /// Reads a table.
    ///
    /// # Errors
    /// In words, with the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let notes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix('#')).map(str::trim).collect();
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        let (_, head) = lines.next().ok_or("a published table without a head")?;
        let keys: Vec<&str> = head.split(',').map(str::trim).collect();
        let mut rows = Vec::new();
        for (number, line) in lines {
            let values: Vec<&str> = line.split(',').map(str::trim).collect();
            let wrong = |what: &str| format!("line {} of a published table, `{line}`: {what}", number + 1);
            if values.len() != keys.len() || keys.len() < 2 {
                return Err(wrong(&format!("{} values under a head of {}", values.len(), keys.len())));
            }
            let last = keys.len() - 1;
            let value = values[last].parse().map_err(|_| wrong("the last value is no number"))?;
            rows.push((keys[..last].iter().zip(&values).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(), value));
        }
        Ok(Self { notes: notes.join(" "), rows })
    }

    /// The figure for a cell with these settings.
    pub fn of(&self, settings: &[(String, String)]) -> Option<f64> {
        self.rows.iter().find(|(row, _)| row.iter().all(|setting| settings.contains(setting))).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_belong_to_cells_by_the_keys_they_name() {
        let table = Published::parse("# By eye.\nloss,relays,mbit\n5%,recode,225\n").unwrap();
        let cell = |relays: &str| [("loss", "5%"), ("relays", relays)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!((table.of(&cell("recode")), table.of(&cell("ip")), &*table.notes), (Some(225.0), None, "By eye."));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, names) in [("", "head"), ("loss,mbit\n5%\n", "line 2"), ("loss,mbit\n5%,fast\n", "no number")] {
            assert!(Published::parse(text).unwrap_err().contains(names), "{text}");
        }
    }
}
