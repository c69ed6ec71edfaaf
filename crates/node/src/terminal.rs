//! The only place of this crate that writes lines to standard output and standard error.
//!
//! Each line passes [`guarded`] last of all: a text of another host that was not escaped where it came in cannot drive the terminal. A line break in
//! such a text is a matter of where it came in (`FarText`, `transfer::shown`): here it is no different from one of ours.

use noctule_proto::far_text::guarded;
use std::fmt::Arguments;
use std::io::{Write, stderr, stdout};

/// A line for standard output. Who closed it does not want to hear it; that is no reason to give up a transfer, or to panic as `println!` does.
macro_rules! say {
    ($($text:tt)*) => { $crate::terminal::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// The same for standard error.
macro_rules! tell {
    ($($text:tt)*) => { $crate::terminal::err(format_args!("{}\n", format_args!($($text)*))) };
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
    stdout().lock().write_all(guarded(&text.to_string()).as_bytes())
}

/// Text for standard error, as it is, in one write.
pub fn err(text: Arguments<'_>) {
    let _ = stderr().lock().write_all(guarded(&text.to_string()).as_bytes());
}

/// Back to the top of the screen, and what was there away.
pub fn clear() {
    let _ = stdout().lock().write_all(b"\x1b[H\x1b[J");
}
