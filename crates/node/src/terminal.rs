//! The only place of this crate that writes lines to standard output and standard error.
//!
//! Each line passes [`guarded`] last of all: a text of another host that was not escaped where it came in cannot drive the terminal. A line break in
//! such a text is a matter of where it came in (`FarText`, `transfer::shown`): here it is no different from one of ours.

use indicatif::MultiProgress;
use noctule_proto::far_text::guarded;
use rustix::fs::OFlags;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Only results, warnings and errors are wanted.
static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// What is drawn at the foot of the terminal, past which everything is written.
static BARS: OnceLock<MultiProgress> = OnceLock::new();

/// Prints a line on standard output. That its reader has closed it is no reason to give up a transfer, or to panic as `println!` does.
macro_rules! say {
    ($($text:tt)*) => { $crate::terminal::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// The same for standard error.
macro_rules! tell {
    ($($text:tt)*) => { $crate::terminal::err(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line for standard error that is neither result nor warning nor error: -q leaves it out.
macro_rules! note {
    ($($text:tt)*) => { if !$crate::terminal::is_quiet() { tell!($($text)*) } };
}

/// Details are wanted: -v.
static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// From now on details are shown.
pub fn be_verbose() {
    IS_VERBOSE.store(true, Relaxed);
}

/// Whether details are shown.
pub fn is_verbose() -> bool {
    IS_VERBOSE.load(Relaxed)
}

/// From now on notes are left out.
pub fn be_quiet() {
    IS_QUIET.store(true, Relaxed);
}

/// Whether notes are left out.
pub fn is_quiet() -> bool {
    IS_QUIET.load(Relaxed)
}

/// Where progress is drawn, if standard error is a terminal and it is wanted.
pub fn bars() -> Option<&'static MultiProgress> {
    (!is_quiet() && stderr().is_terminal()).then(|| BARS.get_or_init(MultiProgress::new))
}

/// Does it with what is drawn taken away.
fn past_bars<T>(write: impl FnOnce() -> T) -> T {
    match BARS.get() {
        Some(bars) => bars.suspend(write),
        None => write(),
    }
}

/// A line of the log, which has escaped its values itself.
pub fn log_line(line: &[u8]) {
    // Nobody may be there to read it.
    let _ = past_bars(|| stderr().lock().write_all(line));
}

/// Whether a standard stream was closed when this process started: the runtime then puts the null device in its place, for reading *and* writing, as
/// no shell does for `< /dev/null`.
pub fn was_closed(stream: impl AsFd) -> bool {
    // Major and minor number of the null device on Linux.
    let null = rustix::fs::makedev(1, 3);
    let is_null = rustix::fs::fstat(&stream)
        .is_ok_and(|stat| stat.st_rdev == null && rustix::fs::FileType::from_raw_mode(stat.st_mode).is_char_device());
    is_null && rustix::fs::fcntl_getfl(&stream).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// The terminal itself, to ask on: standard input may be what is sent, or closed.
///
/// # Errors
/// There is none.
pub fn terminal() -> std::io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// Text for standard output, as it is, in one write.
pub fn out(text: Arguments<'_>) {
    // Nobody may be there to read it.
    let _ = try_out(text);
}

/// The same where the caller wants to know whether it was taken.
///
/// # Errors
/// Of standard output.
pub fn try_out(text: Arguments<'_>) -> std::io::Result<()> {
    let text = text.to_string();
    past_bars(|| stdout().lock().write_all(guarded(&text).as_bytes()))
}

/// Text for standard error, as it is, in one write.
pub fn err(text: Arguments<'_>) {
    let text = text.to_string();
    let _ = past_bars(|| stderr().lock().write_all(guarded(&text).as_bytes()));
}

/// Columns and lines of the terminal that standard output is; `None` if it is none.
pub fn size() -> Option<(usize, usize)> {
    let stdout = stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    Some(size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row))))
}

/// A picture of ours, with the sequences that colour it.
pub fn picture(text: &str) {
    // Nobody may be there to see it.
    let _ = past_bars(|| stdout().lock().write_all(text.as_bytes()));
}

/// Back to the top of the screen, and what was there away.
pub fn clear() {
    let _ = stdout().lock().write_all(b"\x1b[H\x1b[J");
}
