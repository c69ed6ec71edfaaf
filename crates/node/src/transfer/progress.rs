//! Progress of a transfer: a bar on a terminal, plain lines elsewhere, JSON on request.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Between JSON events.
const JSON_EVERY: Duration = Duration::from_millis(100);
/// Between plain lines.
const LINE_EVERY: Duration = Duration::from_secs(2);

enum Face {
    Json,
    Bar(ProgressBar),
    Lines,
}

/// Shows how far a transfer is.
pub struct Progress {
    face: Face,
    start: Instant,
    shown: Instant,
    bytes: u64,
    total: u64,
}

fn event(value: &Value) {
    println!("{value}");
}

impl Progress {
    /// Begins; `what` in a word or two.
    pub fn start(is_json: bool, what: &str, files: u64, total: u64) -> Self {
        let start = Instant::now();
        let face = if is_json {
            event(&json!({"event": "start", "files": files, "total": total}));
            Face::Json
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template("{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta}");
            if let Ok(style) = style {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(what.to_owned());
            Face::Bar(bar)
        } else {
            eprintln!("{what}: {files} files, {total} bytes");
            Face::Lines
        };
        Self { face, start, shown: start, bytes: 0, total }
    }

    /// More bytes are done.
    pub fn advance(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.tick();
    }

    /// So many bytes are done in all.
    pub fn set(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
        self.tick();
    }

    /// Shows the state if it is time to; to be called at least ten times a second.
    pub fn tick(&mut self) {
        let now = Instant::now();
        let elapsed = self.start.elapsed().as_secs_f64();
        let rate = self.bytes as f64 * 8e-6 / elapsed.max(1e-9);
        match &self.face {
            Face::Json if now - self.shown >= JSON_EVERY => {
                self.shown = now;
                event(&json!({"event": "progress", "bytes": self.bytes, "total": self.total, "elapsed_s": elapsed, "rate_mbit": rate}));
            }
            Face::Bar(bar) => bar.set_position(self.bytes),
            Face::Lines if now - self.shown >= LINE_EVERY => {
                self.shown = now;
                let left = self.total.saturating_sub(self.bytes) as f64 * 8e-6 / rate.max(1e-9);
                let share = 100.0 * self.bytes as f64 / self.total.max(1) as f64;
                eprintln!("{share:.0} %  {} of {} bytes  {rate:.1} Mbit/s  {left:.0} s left", self.bytes, self.total);
            }
            _ => {}
        }
    }

    /// A file is in place and verified.
    pub fn file(&self, path: &str, bytes: u64, blake3: &str) {
        match &self.face {
            Face::Json => event(&json!({"event": "file", "path": path, "bytes": bytes, "blake3": blake3, "ok": true})),
            Face::Bar(bar) => bar.println(format!("{blake3}  {path}")),
            Face::Lines => println!("{blake3}  {path}"),
        }
    }

    /// Everything is done.
    pub fn done(self, files: u64, bytes: u64) {
        let seconds = self.start.elapsed().as_secs_f64();
        let goodput = bytes as f64 * 8e-6 / seconds.max(1e-9);
        match &self.face {
            Face::Json => {
                event(&json!({"event": "done", "files": files, "bytes": bytes, "seconds": seconds, "goodput_mbit": goodput, "ok": true}));
            }
            face => {
                if let Face::Bar(bar) = face {
                    bar.finish_and_clear();
                }
                eprintln!("{files} files, {bytes} bytes in {seconds:.2} s: {goodput:.1} Mbit/s, every hash verified");
            }
        }
    }
}
