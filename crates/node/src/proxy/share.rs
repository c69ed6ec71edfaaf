//! `noctule proxy share`: a link that leads to a server, and its picture for cameras.

use super::link::Link;
use crate::address::{DEFAULT_PORT, HostPort};
use crate::cli::ProxyShareArgs;
use crate::failure::Failure;
use crate::invitation::outward;
use crate::{identity, terminal};
use noctule_proxy::access::is_special;
use qrcode::{Color, EcLevel, QrCode};
use std::net::Ipv6Addr;

/// ISO/IEC 18004 §5.3.8: light modules around the symbol.
const QUIET: usize = 4;
/// Black on white, whatever the colours of the terminal are: those of the cube of 256, which no theme changes.
const BLACK_ON_WHITE: &str = "\x1b[38;5;16;48;5;231m";
const PLAIN: &str = "\x1b[0m";

/// Prints it.
pub fn run(args: &ProxyShareArgs) -> Result<(), Failure> {
    let key = match args.peer_key {
        Some(key) => key,
        None => {
            let (config, is_ephemeral) = identity::endpoint_config(args.key.as_deref())?;
            if is_ephemeral {
                return Err(Failure::Usage(
                    "this host has no key yet: noctule proxy serve makes one, --key FILE names another; of a server elsewhere name HOST and --peer-key".into(),
                ));
            }
            config.identity.public()
        }
    };
    let host = match &args.host {
        Some(host) => host.clone(),
        None if args.peer_key.is_some() => {
            return Err(Failure::Usage("--peer-key is of another host: name it, noctule proxy share HOST --peer-key KEY".into()));
        }
        None => own(args.port.unwrap_or(DEFAULT_PORT))?,
    };
    let host: HostPort = host.named(args.port).and_then(|named| named.parse()).map_err(Failure::Usage)?;
    let link = Link::new(&host, key, args.name.clone(), args.code.clone()).to_string();
    say!("{link}");
    note!("on the other host: noctule proxy -D 1080 --from-link LINK");
    if args.code.is_some() {
        note!("the code in it lets one peer in, once: show it to nobody else");
    }
    if let Some((columns, lines)) = terminal::size() {
        let code = QrCode::with_error_correction_level(&link, EcLevel::L).map_err(|e| Failure::system("a QR code of the link", e))?;
        let (wide, high) = size(&code);
        // It stands last: below it the prompt takes a line.
        if wide <= columns && high < lines {
            terminal::picture(&drawn(&code, has_colours()));
        } else {
            note!("noctule: a QR code of this link is {wide} columns wide and {high} lines high; this terminal has {columns} and {lines}");
        }
    }
    Ok(())
}

/// This host, as the outside reaches it.
fn own(port: u16) -> Result<HostPort, Failure> {
    let ip = outward(Ipv6Addr::UNSPECIFIED.into()).ok_or_else(|| {
        Failure::Usage("this host has no route to the outside: say where others reach it, noctule proxy share HOST".into())
    })?;
    if is_special(ip) {
        tell!(
            "noctule: warning: {ip} is an address of this host's own network: for others name HOST, and its port if that is another there"
        );
    }
    ip.to_string().parse::<HostPort>().map(|host| host.with(Some(port))).map_err(Failure::Usage)
}

fn has_colours() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Columns and lines: a line of text shows two rows of modules.
fn size(code: &QrCode) -> (usize, usize) {
    let wide = code.width() + 2 * QUIET;
    (wide, wide.div_ceil(2))
}

/// By half blocks. Without colours light modules are drawn, which is right where the background is dark; cameras mostly take the other, too.
fn drawn(code: &QrCode, has_colours: bool) -> String {
    let (width, colors) = (code.width(), code.to_colors());
    let is_dark = |row: usize, column: usize| {
        let inside = |at: usize| at.checked_sub(QUIET).filter(|at| *at < width);
        let (Some(row), Some(column)) = (inside(row), inside(column)) else { return false };
        colors[row * width + column] == Color::Dark
    };
    let (wide, high) = size(code);
    let mut out = String::new();
    for line in 0..high {
        out.push_str(if has_colours { BLACK_ON_WHITE } else { "" });
        for column in 0..wide {
            let is_drawn = |row| is_dark(row, column) == has_colours;
            out.push(match (is_drawn(2 * line), is_drawn(2 * line + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        out.push_str(if has_colours { PLAIN } else { "" });
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture says the same as the code: what is drawn is read back, module by module.
    #[test]
    fn what_is_drawn_is_the_code_with_its_margin() {
        let code = QrCode::with_error_correction_level("noctule://192.0.2.7:4242/?key=x", EcLevel::L).unwrap();
        for has_colours in [true, false] {
            let text = drawn(&code, has_colours);
            let lines: Vec<Vec<char>> =
                text.lines().map(|l| l.trim_start_matches(BLACK_ON_WHITE).trim_end_matches(PLAIN).chars().collect()).collect();
            let (wide, high) = size(&code);
            assert!(lines.len() == high && lines.iter().all(|line| line.len() == wide));
            for row in 0..wide {
                for column in 0..wide {
                    let c = lines[row / 2][column];
                    let is_drawn = c == '█' || c == if row % 2 == 0 { '▀' } else { '▄' };
                    let inside = (QUIET..QUIET + code.width()).contains(&row) && (QUIET..QUIET + code.width()).contains(&column);
                    let expected = inside && code[(column - QUIET, row - QUIET)] == Color::Dark;
                    assert_eq!(is_drawn == has_colours, expected, "{row} {column}");
                }
            }
        }
    }

    /// A key, a code and a name: on 80 columns and 24 lines the code of a plain link fits.
    #[test]
    fn a_plain_link_fits_on_the_smallest_terminal() {
        let host = "hill.example.org:4242".parse().unwrap();
        let link = Link::new(&host, noctule::PublicKey([7; 32]), None, None).to_string();
        let code = QrCode::with_error_correction_level(link, EcLevel::L).unwrap();
        let (wide, high) = size(&code);
        assert!(wide <= 80 && high < 24, "{wide} {high}");
    }
}
