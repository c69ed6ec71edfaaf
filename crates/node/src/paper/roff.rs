//! The few requests of man(7) that the pages need.

/// A page that is being written.
pub struct Roff(Vec<u8>);

/// Text as it is shown: no request begins it, no hyphen becomes another sign.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Roff {
    /// With its title and footer.
    pub fn page(title: &str, section: u8) -> Self {
        let (version, date) = (env!("CARGO_PKG_VERSION"), env!("NOCTULE_DATE"));
        let date = if date == "unknown" { "" } else { date };
        Self(
            format!(
                ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH \"{}\" \"{section}\" \"{date}\" \"noctule {version}\" \"noctule manual\"\n",
                escaped(title)
            )
            .into_bytes(),
        )
    }

    fn push(&mut self, text: &str) {
        self.0.extend(text.as_bytes());
    }

    pub fn section(&mut self, name: &str) {
        self.push(&format!(".SH \"{name}\"\n"));
    }

    pub fn text(&mut self, text: &str) {
        self.push(&format!("{}\n", escaped(text)));
    }

    pub fn paragraph(&mut self, text: &str) {
        self.push(".PP\n");
        self.text(text);
    }

    /// A name and what it is.
    pub fn item(&mut self, name: &str, what: &str) {
        self.push(&format!(".TP\n\\fB{}\\fR\n", escaped(name)));
        self.text(what);
    }

    /// A command line and what it does.
    pub fn example(&mut self, line: &str, what: &str) {
        self.paragraph(what);
        self.block(line);
    }

    /// Lines as they are.
    pub fn block(&mut self, text: &str) {
        self.push(&format!(".PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", escaped(text)));
    }

    /// What is roff already.
    pub fn raw(&mut self, roff: &[u8]) {
        self.0.extend(roff);
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
