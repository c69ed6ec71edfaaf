//! `noctule doctor`: what this host gives a fast datagram protocol, what it withholds, and what to do about it.

mod path;
mod sockets;
mod system;

use crate::cli::DoctorArgs;
use crate::failure::Failure;
use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Good,
    /// Something is missing that only some uses need.
    Note,
    /// Costs speed, or makes something fail.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, level: Level::Good, found: found.into(), advice: None }
    }
    /// Some uses miss it.
    pub fn note(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, level: Level::Note, found: found.into(), advice: Some(advice.into()) }
    }
    /// Costs something.
    pub fn problem(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, level: Level::Problem, found: found.into(), advice: Some(advice.into()) }
    }
}

/// Looks at everything.
pub async fn run(args: DoctorArgs) -> Result<(), Failure> {
    let mut findings = tokio::task::spawn_blocking(system::look).await.map_err(|e| Failure::system("looking at the system", e))?;
    findings.extend(sockets::look().await);
    if let Some(host) = &args.host {
        findings.extend(path::look(host, &args).await);
    }
    let problems = findings.iter().filter(|f| f.level == Level::Problem).count();
    if args.json {
        let report = serde_json::json!({"version": env!("CARGO_PKG_VERSION"), "problems": problems, "findings": findings});
        say!("{report}");
    } else {
        crate::terminal::out(format_args!("{}", text(&findings)));
    }
    if problems > 0 { Err(Failure::Doctor(problems)) } else { Ok(()) }
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for f in findings {
        let mark = match f.level {
            Level::Good => "good   ",
            Level::Note => "note   ",
            Level::Problem => "PROBLEM",
        };
        out += &format!("{mark}  {:width$}  {}\n", f.name, f.found);
        if let Some(advice) = &f.advice {
            out += &format!("{:9}{:width$}  -> {advice}\n", "", "");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_and_its_advice_another() {
        let text = text(&[Finding::good("clock", "tsc"), Finding::problem("buffers", "small", "do this")]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("good") && lines[0].contains("clock") && lines[0].ends_with("tsc"));
        assert!(lines[1].starts_with("PROBLEM") && lines[2].trim_start().starts_with("-> do this"));
    }
}
