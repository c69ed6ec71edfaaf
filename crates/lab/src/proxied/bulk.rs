//! One connection that is kept full, every byte compared.

use super::contender::TARGET;
use super::course::Lane;
use super::table::Figure;
use crate::net::contest::{Account, ContestError};
use crate::net::tcp::{self, Payload, Relayed, Transfer};
use crate::scenario::Limits;

/// Goodput of the receiving program after the warm-up.
pub(super) fn run(lane: &Lane<'_>) -> Result<Vec<Figure>, ContestError> {
    let scenario = lane.scenario;
    let (warmup, seconds) = (scenario.warmup.0, scenario.seconds.0);
    let transfer = Transfer {
        congestion: lane.contender.congestion(),
        to: std::net::Ipv4Addr::UNSPECIFIED.into(),
        payload: Payload::Pattern(scenario.seed),
        limit: seconds,
        proxies: Vec::new(),
        relayed: Some(Relayed { port: TARGET, by: lane.address() }),
    };
    let course = lane.course();
    let (received, account) = std::thread::scope(|scope| -> Result<_, ContestError> {
        let counting = scope.spawn(move || -> Result<Account, ContestError> {
            std::thread::sleep(warmup);
            course.mark()?;
            std::thread::sleep(seconds - warmup);
            Ok(course.account(scenario)?)
        });
        let received = tcp::run(&lane.near, &lane.far, &transfer);
        let account = counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((received?, account?))
    })?;
    let counted = received.timeline.between(warmup, seconds);
    let mbit = counted as f64 * 8e-6 / (seconds - warmup).as_secs_f64();
    let limit = Limits::of(scenario).forward * 1e-6;
    let mut figures = vec![Figure::new("Mbit/s", mbit)];
    if limit.is_finite() {
        figures.push(Figure::new("share %", mbit / limit * 100.0));
    }
    figures.push(Figure::new(
        "first second Mbit/s",
        received.timeline.between(std::time::Duration::ZERO, std::time::Duration::from_secs(1)) as f64 * 8e-6,
    ));
    if let (Some(sent), true) = (account.sent.last(), counted > 0) {
        figures.push(Figure::new("bytes per byte", *sent as f64 / counted as f64));
    }
    figures.push(Figure::new("wrong bytes", received.bytes_wrong as f64));
    Ok(figures)
}
