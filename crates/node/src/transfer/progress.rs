//! Shows a transfer to the user: a bar on a terminal, plain lines elsewhere, JSON on request; and the report at its end.

use super::entry::{Entry, shown};
use crate::silence::{NO_WORD, Silence, Word};
use crate::units::{counted, rate, time};
use blake3::Hash;
use indicatif::{ProgressBar, ProgressStyle};
use noctule::{PublicKey, Session};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between JSON events.
const JSON_EVERY: Duration = Duration::from_millis(100);
/// Time between plain lines.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Where reports go.
#[derive(Clone)]
pub struct Reporter {
    is_json: bool,
    /// Standard output is for contents.
    is_taken: bool,
    /// Nothing is shown at all.
    is_silent: bool,
    /// Standard output is a terminal.
    is_shown: bool,
    /// How long the other side is tried again, or waited for, when it falls silent.
    give_up: Option<Duration>,
    /// Beginnings and ends are logged.
    is_logged: bool,
}

impl Reporter {
    /// `is_taken`: nothing but contents goes to standard output.
    pub fn new(is_json: bool, is_taken: bool) -> Self {
        Self { is_json, is_taken, is_silent: false, is_shown: std::io::stdout().is_terminal(), give_up: None, is_logged: false }
    }

    /// A reporter that shows nothing; the log tells of a peer that falls silent.
    pub fn silent() -> Self {
        Self { is_json: false, is_taken: false, is_silent: true, is_shown: false, give_up: None, is_logged: false }
    }

    /// The other side is tried again for so long, when it falls silent.
    pub fn with_patience(self, give_up: Duration) -> Self {
        Self { give_up: Some(give_up).filter(|time| !time.is_zero()), ..self }
    }

    /// Whether everything is told as JSON.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// The same of a process that serves others: the log tells of each transfer.
    pub fn logging(self) -> Self {
        Self { is_logged: true, ..self }
    }

    /// A line for the user that is no result.
    pub fn say(&self, text: &str) {
        if !self.is_silent {
            tell!("{text}");
        }
    }

    /// A line that is neither result nor warning.
    fn note(&self, text: &str) {
        if !self.is_silent {
            note!("{text}");
        }
    }

    /// Prints a result.
    fn result(&self, text: &str) {
        match self.is_taken {
            _ if self.is_silent => {}
            true => tell!("{text}"),
            // A reader that has gone away is no reason to stop.
            false => say!("{text}"),
        }
    }

    /// Notes that this side, or the other one, hashes a file before anything travels: `done` bytes of `total`. About once a second.
    pub fn comparing(&self, done: u64, total: u64) {
        if self.is_json {
            self.event(&json!({"event": "comparing", "peer": null, "bytes": done, "total": total}));
        } else if let Some(text) = comparison(done, total) {
            self.note(&text);
        }
    }

    /// A line for programs.
    pub fn event(&self, value: &Value) {
        self.result(&value.to_string());
    }

    /// Begins to show a transfer; `what` in a word or two. `total` is 0 if the size of what comes is not known.
    pub fn start(&self, what: &str, peer: &str, files: u64, total: u64) -> Progress {
        let start = Instant::now();
        if self.is_json {
            self.event(&json!({"event": "start", "peer": named(peer), "files": files, "total": total}));
        }
        let bar = crate::terminal::bars().filter(|_| !self.is_json && !self.is_silent).map(|bars| {
            let bar = bars.add(ProgressBar::new(total));
            if let Ok(style) = ProgressStyle::with_template(template(total, columns())) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(what.to_owned());
            bar
        });
        if self.is_logged {
            tracing::info!(files, bytes = (total > 0).then_some(total), "{what}");
        } else if bar.is_none() && !self.is_json {
            let size = if total > 0 { format!(", {}", counted(total, "byte")) } else { String::new() };
            self.note(&format!("{what}: {}{size}", many(files)));
        }
        Progress {
            to: self.clone(),
            bar,
            peer: peer.to_owned(),
            start,
            shown: start,
            bytes: 0,
            spared: 0,
            total,
            files,
            arrived: 0,
            moving: Moving::default(),
            compared: None,
            what: what.to_owned(),
            silent: HashMap::new(),
        }
    }
}

/// How a transfer ended well.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Files in place.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these files, those that were there before.
    pub same: u64,
    /// Of these files, those of which a part was there before.
    pub resumed: u64,
    /// Further files, which are newer at the receiver and stay.
    pub newer: u64,
    /// What the receiver deleted.
    pub deleted: u64,
    /// See [`digest`](super::entry::digest).
    pub digest: Hash,
}

/// Shows how far a transfer is.
pub struct Progress {
    to: Reporter,
    bar: Option<ProgressBar>,
    peer: String,
    start: Instant,
    shown: Instant,
    bytes: u64,
    spared: u64,
    total: u64,
    files: u64,
    /// Files that are in place.
    arrived: u64,
    /// The rate of the bytes that moved, without the time of comparing.
    moving: Moving,
    /// What is being compared.
    compared: Option<(u64, u64)>,
    what: String,
    /// What the user was told of peers that say nothing.
    silent: HashMap<PublicKey, Silence>,
}

/// A peer's key for programs; nothing where there are several.
fn named(peer: &str) -> Value {
    if peer.is_empty() { Value::Null } else { peer.into() }
}

fn many(files: u64) -> String {
    counted(files, "file")
}

/// Columns of the terminal on standard error; many, if it does not say.
fn columns() -> u16 {
    rustix::termios::tcgetwinsize(std::io::stderr()).ok().map(|size| size.ws_col).filter(|n| *n > 0).unwrap_or(u16::MAX)
}

/// The bar's template that fits into one line. A longer one would wrap, and each update would leave the old one above.
fn template(total: u64, columns: u16) -> &'static str {
    match (total, columns) {
        (0, _) => "{msg} {bytes}",
        (_, ..20) => "{percent} %",
        (_, ..50) => "{msg} {percent} %",
        (_, ..80) => "{msg} {percent} % {prefix}",
        _ => "{msg} [{wide_bar}] {bytes}/{total_bytes} {prefix}",
    }
}

/// Bytes that moved over the network, and their rate. Bytes that are there already, and the time of comparing them, would mislead about the rest.
#[derive(Clone, Copy, Debug, Default)]
struct Moving {
    bytes: u64,
    /// Time in which they moved.
    time: Duration,
    looked: Option<Instant>,
}

impl Moving {
    /// Notes that so many bytes have moved by now. Time in which none did because files were compared does not count.
    fn note(&mut self, bytes: u64, is_comparing: bool, now: Instant) {
        let since = self.looked.replace(now).map_or(Duration::ZERO, |at| now - at);
        if bytes > 0 && (bytes > self.bytes || !is_comparing) {
            self.time += since;
        }
        self.bytes = bytes;
    }

    fn mbit(&self) -> f64 {
        match self.time.is_zero() {
            true => 0.0,
            false => self.bytes as f64 * 8e-6 / self.time.as_secs_f64(),
        }
    }
}

/// The rate, and the time that the rest takes at it.
fn pace(left: u64, rate_mbit: f64) -> String {
    match rate_mbit > 0.0 {
        true => format!("{}  {:.0} s left", rate(rate_mbit * 1e6), left as f64 * 8e-6 / rate_mbit),
        // Before anything has moved neither is known.
        false => String::new(),
    }
}

/// One line of progress.
fn line(bytes: u64, total: u64, files: (u64, u64), rate_mbit: f64) -> String {
    if total == 0 {
        return format!("{bytes} bytes  {}", rate(rate_mbit * 1e6));
    }
    let share = 100.0 * bytes as f64 / total as f64;
    let many = match files {
        (_, 0 | 1) => String::new(),
        (done, all) => format!("  {done} of {all} files"),
    };
    let pace = pace(total.saturating_sub(bytes), rate_mbit);
    format!("{share:.0} %  {bytes} of {total} bytes{many}  {pace}").trim_end().to_owned()
}

/// The progress of comparing, in words.
fn comparison(done: u64, total: u64) -> Option<String> {
    (total > 0).then(|| format!("comparing {:.0} %", 100.0 * done.min(total) as f64 / total as f64))
}

impl Progress {
    fn peer(&self) -> Value {
        named(&self.peer)
    }

    /// Notes that `bytes` are done in all, `spared` of which did not have to be sent. Call it at least ten times a second.
    pub fn set(&mut self, bytes: u64, spared: u64) {
        self.bytes = self.bytes.max(bytes);
        self.spared = spared;
        let now = Instant::now();
        let elapsed = self.start.elapsed().as_secs_f64();
        self.moving.note(self.bytes.saturating_sub(self.spared), self.compared.is_some(), now);
        let rate = self.moving.mbit();
        let compared = self.compared.take().and_then(|(done, total)| comparison(done, total));
        if let Some(bar) = &self.bar {
            let what = match (self.files, columns()) {
                (2.., 100..) => format!("{} {} of {} files", self.what, self.arrived, self.files),
                _ => self.what.clone(),
            };
            bar.set_message(compared.unwrap_or(what));
            let is_mute = !self.peer.is_empty() && self.silent.values().any(Silence::is_told);
            let pace = if is_mute { "no answer".to_owned() } else { pace(self.total.saturating_sub(self.bytes), rate) };
            bar.set_prefix(pace);
            bar.set_position(self.bytes);
        } else if self.to.is_json && now - self.shown >= JSON_EVERY {
            self.shown = now;
            self.to.event(
                &json!({"event": "progress", "peer": self.peer(), "bytes": self.bytes, "total": self.total, "elapsed_s": elapsed, "rate_mbit": rate}),
            );
        } else if !self.to.is_json && now - self.shown >= LINE_EVERY {
            self.shown = now;
            let line = line(self.bytes, self.total, (self.arrived, self.files), rate);
            self.to.note(&compared.map_or(line.clone(), |compared| format!("{compared}  {line}")));
        }
    }

    /// Notes that one end compares files: `done` bytes of `total`. Shown until [`set`](Self::set) is called again.
    pub fn comparing(&mut self, done: u64, total: u64) {
        self.compared = (total > 0).then_some((done, total));
        if self.to.is_json && total > 0 && self.shown.elapsed() >= JSON_EVERY {
            self.shown = Instant::now();
            self.to.event(&json!({"event": "comparing", "peer": self.peer(), "bytes": done, "total": total}));
        }
        if self.bytes == 0 && !self.to.is_json {
            self.set(0, 0);
            self.compared = (total > 0).then_some((done, total));
        }
    }

    /// Tells the user, once, that the other side has said nothing for a while, and that it is there again. To be called about as often as [`set`](Self::set).
    pub fn look_at(&mut self, session: &Session) {
        let peer = session.peer_key();
        let Some((word, address)) = self.silent.entry(peer).or_default().look(session) else { return };
        let is_silent = word == Word::Silent;
        if self.to.is_json {
            self.to.event(&json!({"event": if is_silent { "silent" } else { "heard" }, "peer": peer.to_string(), "address": address}));
        } else if self.to.is_logged || self.to.is_silent {
            // The log says of which transfer, among several.
            match is_silent {
                true => tracing::warn!("no answer from {address} for {}, still waiting", time(NO_WORD)),
                false => tracing::warn!("{address} is there again, {} goes on", self.what),
            }
        } else if is_silent {
            let until = match self.to.give_up {
                Some(give_up) => format!("trying again, giving up in {}", time(give_up.saturating_sub(NO_WORD))),
                None => "still trying".to_owned(),
            };
            self.to.say(&format!("noctule: no answer from {address} for {}, {until}", time(NO_WORD)));
        } else {
            self.to.say(&format!("noctule: {address} is there again, {} goes on", self.what));
        }
    }

    /// A file is in place and verified.
    pub fn file(&mut self, entry: &Entry, hash: Hash) {
        self.arrived += 1;
        if self.to.is_json {
            let mut event = json!({
                "event": "file", "peer": self.peer(), "path": shown(&entry.path), "bytes": entry.size(), "blake3": hash.to_string(), "ok": true
            });
            if std::str::from_utf8(&entry.path).is_err() {
                event["path_hex"] = entry.path.iter().map(|b| format!("{b:02x}")).collect::<String>().into();
            }
            self.to.event(&event);
            return;
        }
        // Hashes: on a terminal only with --verbose, in a file or pipe always.
        if !crate::terminal::is_quiet() && (!self.to.is_shown || crate::terminal::is_verbose()) {
            self.to.result(&format!("{hash}  {}", entry.shown()));
        }
    }

    /// Tells the result of one of several receivers.
    pub fn receiver(&self, name: &str, key: PublicKey, result: Result<(), &str>) {
        if self.to.is_json {
            let mut event = json!({"event": "receiver", "name": name, "peer": key.to_string(), "ok": result.is_ok()});
            if let Err(why) = result {
                event["message"] = why.into();
            }
            self.to.event(&event);
            return;
        }
        match result {
            Ok(()) => self.to.say(&format!("{name}: has it")),
            Err(why) => self.to.say(&format!("noctule: {name}: {why}")),
        }
    }

    /// A file is not there.
    pub fn failed(&self, entry: &Entry, why: &str) {
        if self.to.is_json {
            self.to.event(&json!({"event": "file", "peer": self.peer(), "path": shown(&entry.path), "ok": false, "message": why}));
        }
        // Some failures name their file themselves.
        let name = if why.starts_with(&entry.shown()) { String::new() } else { format!("{}: ", entry.shown()) };
        self.to.say(&format!("noctule: {name}{why}"));
    }

    /// Something that was there is deleted.
    pub fn deleted(&self, name: &[u8]) {
        match self.to.is_json {
            true => self.to.event(&json!({"event": "deleted", "peer": self.peer(), "path": shown(name)})),
            false => self.to.say(&format!("deleted: {}", shown(name))),
        }
    }

    /// Something that is there would be deleted.
    pub fn would_delete(&self, name: &[u8]) {
        super::sending::print_deletion(name, &self.to);
    }

    /// A line for the user.
    pub fn note(&self, text: &str) {
        self.to.say(&format!("noctule: {text}"));
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Everything has been sent, in one direction: what arrived is unknown.
    pub fn sent(self, summary: &Summary, packets: u64) {
        let seconds = self.start.elapsed().as_secs_f64();
        self.clear();
        if self.to.is_json {
            self.to.event(&json!({
                "event": "sent", "peer": self.peer(), "files": summary.files, "bytes": summary.bytes, "packets": packets, "seconds": seconds,
                "blake3": summary.digest.to_string(), "ok": true
            }));
            return;
        }
        self.to.say(&format!(
            "{} sent in {}, {seconds:.2} s; nobody can say here what arrived",
            counted(summary.bytes, "byte"),
            counted(packets, "packet")
        ));
    }

    /// Everything is done.
    pub fn done(self, summary: &Summary) {
        self.done_with(summary, &[]);
    }

    /// Everything is done; with figures for the JSON event.
    pub fn done_with(self, summary: &Summary, figures: &[(&str, u64)]) {
        let seconds = self.start.elapsed().as_secs_f64();
        let moved = summary.bytes.saturating_sub(self.spared);
        let goodput = moved as f64 * 8e-6 / seconds.max(1e-9);
        let Summary { files, bytes, same, resumed, newer, deleted, digest } = *summary;
        // Each of several receivers has the same file.
        let receivers = figures.iter().find(|(name, _)| *name == "receivers").map_or(1, |(_, n)| *n).max(1);
        let bytes = bytes / receivers;
        self.clear();
        if self.to.is_logged {
            tracing::info!(files, bytes, moved, same, resumed, seconds = (seconds * 1e3).round() * 1e-3, "received, every hash verified");
        }
        if self.to.is_json {
            let mut event = json!({
                "event": "done", "peer": self.peer(), "files": files, "bytes": bytes, "seconds": seconds, "goodput_mbit": goodput,
                "bytes_moved": moved, "files_same": same, "files_resumed": resumed, "files_newer": newer, "deleted": deleted, "blake3": digest.to_string(), "ok": true
            });
            figures.iter().for_each(|(name, value)| event[*name] = (*value).into());
            self.to.event(&event);
            return;
        }
        let mut before = String::new();
        if same > 0 {
            before += &format!(", {} there already", many(same));
        }
        if resumed > 0 {
            before += &format!(", {resumed} resumed");
        }
        if newer > 0 {
            before += &format!(", {} newer there and left", many(newer));
        }
        if deleted > 0 {
            before += &format!(", {deleted} deleted");
        }
        let rate = if moved > 0 { format!(": {}", rate(goodput * 1e6)) } else { String::new() };
        let each = if receivers > 1 { format!(" to each of {receivers} receivers") } else { String::new() };
        self.to.say(&format!(
            "{}, {}{each} in {seconds:.2} s{rate}{before}; every hash verified, BLAKE3 of all {}",
            many(files),
            counted(bytes, "byte"),
            &digest.to_hex()[..16]
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_fits_the_terminal() {
        let shown = |total, columns| {
            let text = template(total, columns).replace("{msg}", "receiving").replace("{percent}", "100").replace("{wide_bar}", "");
            let text = text.replace("{total_bytes}", "1023.99 GiB").replace("{bytes_per_sec}", "123.45 MiB/s");
            text.replace("{bytes}", "1023.99 GiB").replace("{prefix}", &pace(99_999_000_000, 1234.5))
        };
        for (columns, has_bar) in [(10, false), (21, false), (49, false), (50, false), (79, false), (80, true), (u16::MAX, true)] {
            assert!(shown(1, columns).len() <= usize::from(columns), "{columns}: {}", shown(1, columns));
            assert_eq!(shown(1, columns).contains('['), has_bar);
        }
        assert_eq!(shown(0, 40), "receiving 1023.99 GiB");
    }

    /// Regression: a resumed transfer estimated hours while it compared, and seconds when it had to move the rest.
    #[test]
    fn rate_is_that_of_what_moved_and_comparing_takes_no_part_in_it() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut moving = Moving::default();
        for s in 0..=100 {
            moving.note(0, true, at(s));
        }
        assert_eq!(moving.mbit(), 0.0);
        for s in 1..=10 {
            moving.note(s * 1_000_000, false, at(100 + s));
        }
        assert_eq!(moving.mbit(), 8.0);
        // While files are compared nothing moves, and the rate stays. A path that carries nothing lowers it.
        moving.note(10_000_000, true, at(140));
        assert_eq!(moving.mbit(), 8.0);
        moving.note(10_000_000, false, at(150));
        assert_eq!(moving.mbit(), 4.0);
    }

    #[test]
    fn lines_say_what_can_be_known_and_no_more() {
        assert_eq!(line(500, 1000, (0, 1), 0.001), "50 %  500 of 1000 bytes  1.0 kbit/s  4 s left");
        assert_eq!(line(0, 1000, (7, 300), 0.0), "0 %  0 of 1000 bytes  7 of 300 files");
        assert_eq!(line(500, 0, (0, 1), 4.0), "500 bytes  4.0 Mbit/s");
        assert_eq!(comparison(340, 1000).unwrap(), "comparing 34 %");
        assert_eq!(comparison(0, 0), None);
        assert_eq!((many(1), many(2)), ("1 file".to_owned(), "2 files".to_owned()));
    }
}
