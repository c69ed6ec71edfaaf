//! Fits a report to a terminal: rows are cut to its width, sentences wrapped, and what has no room in its height is counted.

/// The room there is; none of it known: as long as it takes, for files and pipes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: Option<usize>,
    /// Lines.
    pub height: Option<usize>,
}

/// A narrower terminal gets rows that its own wrapping breaks.
const LEAST_WIDTH: usize = 40;
/// A lower one scrolls.
const LEAST_HEIGHT: usize = 8;

/// A part of the report: lines that are always shown, and rows, of which the last are hidden first.
#[derive(Debug, Default)]
pub struct Section {
    /// Sentences, wrapped.
    pub text: Vec<String>,
    /// The rows' heading, cut.
    pub heading: Option<String>,
    /// Cut.
    pub rows: Vec<String>,
}

impl Screen {
    /// Of standard output, if that is a terminal. `is_whole`: what does not fit may scroll.
    pub fn of_terminal(is_whole: bool) -> Self {
        let Some((width, height)) = crate::terminal::size() else { return Self::default() };
        Self { width: Some(width.max(LEAST_WIDTH)), height: (!is_whole).then_some(height.max(LEAST_HEIGHT)) }
    }

    /// The sections, a blank line between each two.
    pub fn fit(self, sections: Vec<Section>) -> String {
        let mut parts: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for Section { text, heading, rows } in sections {
            let mut head: Vec<String> = text.iter().flat_map(|line| self.wrapped(line)).collect();
            head.extend(heading.map(|h| self.cut(&h)));
            if !head.is_empty() || !rows.is_empty() {
                parts.push((head, rows.iter().map(|row| self.cut(row)).collect()));
            }
        }
        let mut hidden = vec![0; parts.len()];
        if let Some(height) = self.height {
            // The last line stays free for the cursor.
            let room = height - 1;
            let lines = |parts: &[(Vec<String>, Vec<String>)], hidden: &[usize]| {
                let all: usize = parts.iter().map(|(head, rows)| head.len() + rows.len()).sum();
                all + parts.len().saturating_sub(1) + hidden.iter().filter(|n| **n > 0).count()
            };
            while lines(&parts, &hidden) > room {
                // The longest part loses a row; of two as long the later one.
                let Some((longest, _)) = parts.iter().enumerate().filter(|(_, p)| p.1.len() > 1).max_by_key(|(_, p)| p.1.len()) else {
                    break;
                };
                parts[longest].1.pop();
                hidden[longest] += 1;
            }
        }
        let mut all: Vec<String> = Vec::new();
        for ((head, rows), hidden) in parts.into_iter().zip(hidden) {
            if !all.is_empty() {
                all.push(String::new());
            }
            all.extend(head);
            all.extend(rows);
            if hidden > 0 {
                all.push(format!("+{hidden} more"));
            }
        }
        if let Some(room) = self.height.map(|h| h - 1)
            && all.len() > room
        {
            let more = all.len() - (room - 1);
            all.truncate(room - 1);
            all.push(format!("+{more} more lines: make the window higher"));
        }
        all.into_iter().map(|line| line + "\n").collect()
    }

    fn cut(self, line: &str) -> String {
        let Some(width) = self.width.filter(|width| line.chars().count() > *width) else { return line.trim_end().to_owned() };
        let mut cut: String = line.chars().take(width - 1).collect();
        cut.push('…');
        cut
    }

    /// At spaces; what follows is indented by two more.
    fn wrapped(self, line: &str) -> Vec<String> {
        let Some(width) = self.width else { return vec![line.to_owned()] };
        let indent = line.len() - line.trim_start().len();
        let mut lines = Vec::new();
        let mut now = " ".repeat(indent);
        let mut is_begun = false;
        for word in line.split_whitespace() {
            if is_begun && now.chars().count() + 1 + word.chars().count() > width {
                lines.push(self.cut(&now));
                now = " ".repeat(indent + 2);
                is_begun = false;
            }
            if is_begun {
                now.push(' ');
            }
            now.push_str(word);
            is_begun = true;
        }
        lines.push(self.cut(&now));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_part_gives_way_and_what_is_gone_is_counted() {
        let screen = Screen { width: Some(40), height: Some(12) };
        let rows = |n: usize| (0..n).map(|i| format!("row {i}")).collect::<Vec<_>>();
        let head = |text: &str| Section { heading: Some(text.to_owned()), ..Default::default() };
        let text = screen.fit(vec![Section { rows: rows(3), ..head("short") }, Section { rows: rows(50), ..head("long") }]);
        assert_eq!(text.lines().count(), 11, "{text}");
        assert!(text.contains("row 2\n\nlong\nrow 0\nrow 1\n") && text.ends_with("\n+46 more\n"), "{text}");
        assert_eq!(Screen::default().fit(vec![Section { rows: rows(50), ..head("all") }]).lines().count(), 51);
    }

    #[test]
    fn sentences_are_wrapped_and_rows_cut() {
        let screen = Screen { width: Some(40), height: None };
        let long = "  one two three four five six seven eight nine ten eleven".to_owned();
        let text = screen.fit(vec![Section { text: vec![long.clone()], heading: None, rows: vec![long.clone()] }]);
        assert_eq!(text, "  one two three four five six seven\n    eight nine ten eleven\n  one two three four five six seven eig…\n");
        let narrow = screen.fit(vec![Section { text: vec!["x".repeat(99)], ..Default::default() }]);
        assert!(narrow.lines().all(|l| l.chars().count() <= 40), "{narrow}");
    }
}
