//! The report as lines of at most 80 columns; with `-V` of more.

use super::super::protocol::{Direction, Mode, Request};
use super::leg::{Interval, Sums};
use crate::units::{Scale, size};

/// How lines are written.
pub struct Style {
    pub direction: Direction,
    pub mode: Mode,
    pub has_messages: bool,
    pub flows: u16,
    pub is_verbose: bool,
    pub scale: Scale,
}

impl Style {
    fn mark(&self, is_forward: bool) -> &'static str {
        match (self.direction, is_forward) {
            (Direction::Both, true) => "> ",
            (Direction::Both, false) => "< ",
            _ => "",
        }
    }

    fn has_repair(&self) -> bool {
        matches!(self.mode, Mode::Brtp | Mode::Btp)
    }

    /// What is asked for.
    pub fn headline(&self, request: &Request, remote: &str, cc: &str) -> String {
        let flows = if request.parallel == 1 { "1 flow".to_owned() } else { format!("{} flows", request.parallel) };
        let sender = match request.direction {
            Direction::Forward => "",
            Direction::Reverse => ", the server sends",
            Direction::Both => ", both send",
        };
        let length = match (request.is_file, request.bytes) {
            (true, _) => "a file".to_owned(),
            (false, Some(bytes)) => size(bytes as f64),
            (false, None) => format!("{} s", request.seconds),
        };
        format!("{} with {remote}, {length}, {flows}{sender}, congestion control {cc}", request.mode.name())
    }

    /// Names of the columns.
    pub fn head(&self) -> String {
        let mut head = format!(
            "{}{:>13} {:>9} {:>13} {:>7} {:>8}",
            " ".repeat(self.mark(true).len()),
            "seconds",
            "transfer",
            "goodput",
            "RTT",
            "loss"
        );
        if self.has_repair() {
            head += &format!(" {:>8}", "repair");
        }
        if self.has_messages {
            head += &format!(" {:>7} {:>5}", "jitter", "lost");
        }
        if self.is_verbose {
            if self.has_repair() {
                head += &format!(" {:>8}", "ahead");
            }
            head += &format!(" {:>11} {:>8}", "CPU snd/rcv", "s/Gbit");
        }
        head
    }

    fn span(&self, is_forward: bool, i: &Interval) -> String {
        let decimals = if i.received.end < 1000.0 { 2 } else { 1 };
        format!("{}{:>6.decimals$}-{:<6.decimals$}", self.mark(is_forward), i.received.start, i.received.end)
    }

    /// One interval; several flows have a line each before their sum.
    pub fn interval(&self, is_forward: bool, i: &Interval) -> Vec<String> {
        let (r, s) = (&i.received, &i.sent);
        let rate = |bytes: u64| self.scale.rate(bytes as f64 * 8.0 / i.seconds());
        let mut lines = Vec::new();
        if self.flows > 1 {
            for (number, bytes) in r.flows.iter().enumerate() {
                lines.push(format!("{} {:>9} {:>13}  flow {}", self.span(is_forward, i), size(*bytes as f64), rate(*bytes), number + 1));
            }
        }
        let mut line = format!(
            "{} {:>9} {:>13} {:>7} {:>8}",
            self.span(is_forward, i),
            size(r.bytes as f64),
            rate(r.bytes),
            milliseconds(s.rtt_ms),
            percent(i.loss(self.mode))
        );
        if self.has_repair() {
            line += &format!(" {:>8}", percent(s.repair_share));
        }
        if self.has_messages {
            line += &format!(" {:>7} {:>5}", milliseconds(r.jitter_ms), r.lost_messages);
        }
        if self.is_verbose {
            if self.has_repair() {
                line += &format!(" {:>8}", percent(s.proactive_share));
            }
            let per_gbit = i.cpu_per_gbit().map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
            line += &format!(" {:>11} {per_gbit:>8}", format!("{:.0}/{:.0} %", s.cpu * 100.0, r.cpu * 100.0));
        }
        if i.is_omitted {
            line += " omitted";
        }
        lines.push(line);
        lines
    }

    /// The sums of a direction.
    pub fn summary(&self, is_forward: bool, s: &Sums) -> Vec<String> {
        let mut head = format!("{} in {:.2} s: {}", size(s.bytes as f64), s.seconds, self.scale.rate(s.bits_per_second()));
        let mut lines = Vec::new();
        if self.mode == Mode::Tcp {
            lines.push(head);
            lines.push(format!("{} of segments sent again, RTT {:.1} ms", percent(s.loss), s.rtt_ms));
        } else {
            head += &format!("; {:.3} bytes sent per useful byte", s.wire_per_byte());
            lines.push(head);
            let loss = if self.has_repair() { format!("loss {}, ", percent(s.loss)) } else { String::new() };
            let repair = if self.has_repair() { format!("repair {} of coded packets, ", percent(s.repair_share)) } else { String::new() };
            lines.push(format!("{loss}{repair}RTT {:.1} ms", s.rtt_ms));
        }
        if self.flows > 1 {
            let flows: Vec<_> = s.flows.iter().map(|b| self.scale.rate(*b as f64 * 8.0 / s.seconds.max(1e-9))).collect();
            lines
                .extend(flows.chunks(4).enumerate().map(|(i, c)| format!("{} {}", if i == 0 { "flows:" } else { "      " }, c.join(", "))));
        }
        if self.is_verbose {
            if self.has_repair() {
                lines.push(format!("{} of coded packets were repair sent ahead of any known loss", percent(s.proactive_share)));
            }
            lines.push(format!(
                "CPU sender {:.0} %, receiver {:.0} %: {:.2} s per Gbit",
                s.sender_cpu * 100.0,
                s.receiver_cpu * 100.0,
                s.cpu_per_gbit()
            ));
        }
        if s.messages_sent > 0 {
            lines.push(format!(
                "messages: {} sent, {} received, residual loss {:.3} %",
                s.messages_sent,
                s.messages_received,
                s.residual_loss() * 100.0
            ));
            lines.push(format!("jitter {:.3} ms, {} out of order", s.jitter_ms, s.out_of_order));
        }
        if s.is_cut {
            lines.push("the time was over before everything had arrived: the rest was given up".to_owned());
        }
        if s.bytes_wrong > 0 {
            lines.push(format!("{} BYTES WERE WRONG: please report this", s.bytes_wrong));
        }
        lines.iter().map(|l| format!("{}{l}", self.mark(is_forward))).collect()
    }
}

/// In seven characters at most, up to minutes.
fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::super::protocol::{Received, Sent};
    use super::*;

    #[test]
    fn lines_fit_eighty_columns_in_every_mode() {
        for mode in [Mode::Brtp, Mode::Btp, Mode::Transparent, Mode::Tcp] {
            for direction in [Direction::Forward, Direction::Both] {
                for has_messages in [false, mode != Mode::Tcp] {
                    let style = Style { direction, mode, has_messages, flows: 2, is_verbose: false, scale: Scale::default() };
                    let received = Received {
                        start: 1234.0,
                        end: 1235.0,
                        bytes: 999_990_000,
                        jitter_ms: 123.45,
                        lost_messages: 12345,
                        flows: vec![1, 999_000_000],
                        ..Received::default()
                    };
                    let sent = Sent { rtt_ms: 1234.5, loss: 1.0, repair_share: 1.0, ..Sent::default() };
                    let interval = Interval { received, sent, is_omitted: false, is_rest: false };
                    let sums = Sums {
                        seconds: 3600.0,
                        bytes: 999_990_000_000,
                        messages_sent: 1 << 40,
                        flows: vec![1 << 40; 8],
                        is_cut: true,
                        ..Sums::default()
                    };
                    let lines = style.interval(false, &interval).into_iter().chain(style.summary(true, &sums)).chain([style.head()]);
                    for line in lines {
                        assert!(line.chars().count() <= 80, "{mode:?} {direction:?}: {} columns: {line}", line.chars().count());
                    }
                }
            }
        }
    }

    #[test]
    fn columns_stand_below_their_names() {
        let style = Style {
            direction: Direction::Forward,
            mode: Mode::Btp,
            has_messages: true,
            flows: 1,
            is_verbose: true,
            scale: Scale::default(),
        };
        let interval = Interval {
            received: Received { end: 1.0, bytes: 1, ..Received::default() },
            sent: Sent::default(),
            is_omitted: false,
            is_rest: false,
        };
        assert_eq!(style.head().chars().count(), style.interval(true, &interval)[0].chars().count());
    }
}
