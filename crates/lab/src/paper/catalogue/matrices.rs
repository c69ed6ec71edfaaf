//! Document 003: the two matrices at 1 Gbit/s.

use super::{published, runs};
use crate::paper::figure::{Chart, Figure, Statistic, Table};
use crate::paper::quantity::{GOODPUT, SHARE};

pub(super) static BRTP: Figure = Figure {
    id: "003-matrix",
    title: "One hop, 1 Gbit/s, loss and latency",
    source: "Document 003, performance matrix of BRTP",
    question: "What does a bulk flow get of 1 Gbit/s at 0 to 10 % loss and 10 to 100 ms one way?",
    setup: "Loss in both directions, a queue of one BDP. The cells of 1 ms and of 20 % have no published value.",
    runs: &[runs!("gigabit.toml")],
    tables: &[
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "delay", besides: &[published!("BRTP", "003-brtp.csv")] },
        Table { quantity: &SHARE, statistic: Statistic::Mean, columns: "delay", besides: &[] },
    ],
    contender: None,
    extras: &[],
    chart: Chart::Matrix,
};

pub(super) static BBR: Figure = Figure {
    id: "003-bbr",
    title: "One hop, 1 Gbit/s, BBR",
    source: "Document 003, performance matrix of TCP BBR",
    question: "What does BBR get over the same link?",
    setup: "QUIC's BBR (version 1) stands for that of the kernel, which `noctule-lab net --peer tcp-bbr` runs on namespaces. Loss in both directions, a queue of one BDP, 10 s counted.",
    runs: &[runs!("paper/003-bbr.toml")],
    tables: &[
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "delay", besides: &[published!("TCP BBR", "003-bbr.csv")] },
        Table { quantity: &SHARE, statistic: Statistic::Mean, columns: "delay", besides: &[] },
    ],
    contender: None,
    extras: &[],
    chart: Chart::Matrix,
};
