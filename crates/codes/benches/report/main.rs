//! The figures of the codes: ours and the peers in one process, interleaved, medians.
//!
//! `cargo bench -p noctule-codes --features rs,isal --bench report -- [section …]` writes `docs/results/codes/<section>.md` and the plots.
//! Sections: kernels, block, lossless, overhead, overhead-hops, recode, fountain, mac, parallel; all of them without an argument. `--quick` takes fewer repetitions.

mod block;
mod fountain;
mod kernels;
mod lossless;
mod measure;
mod overhead;
mod parallel;
mod plot;
mod small;

use std::path::PathBuf;

/// Measures one thing and writes its page.
type Section = fn(&Report);

/// Where results go, and how often a measurement is repeated.
pub struct Report {
    folder: PathBuf,
    quick: bool,
}

impl Report {
    fn repetitions(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(3) } else { full }
    }

    /// Writes a section's Markdown and shows it.
    fn write(&self, section: &str, text: &str) {
        println!("{text}");
        let command = format!("cargo bench -p noctule-codes --features rs,isal --bench report -- {section}");
        let page = format!("<!-- made by: {command} -->\n{text}");
        std::fs::write(self.folder.join(format!("{section}.md")), page).expect("the results folder can be written");
    }

    fn plot_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.svg"))
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/codes"));
    std::fs::create_dir_all(&folder).expect("the results folder can be made");
    let report = Report { folder, quick: arguments.iter().any(|a| a == "--quick") };
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| !a.starts_with("--")).collect();
    let sections: [(&str, Section); 9] = [
        ("kernels", kernels::run),
        ("block", block::run),
        ("lossless", lossless::run),
        ("overhead", overhead::run),
        ("overhead-hops", overhead::run_hops),
        ("recode", small::recode),
        ("mac", small::mac),
        ("fountain", fountain::run),
        ("parallel", parallel::run),
    ];
    for (name, run) in sections {
        if wanted.is_empty() || wanted.contains(&name) {
            run(&report);
        }
    }
}
