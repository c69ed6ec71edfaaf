//! Documents 000 and 001: the BATS protocol over one, three and six hops.

use super::{published, runs};
use crate::paper::equation;
use crate::paper::figure::{Beside, Chart, Contender, Course, Extra, Figure, Kind, Statistic, Table};
use crate::paper::quantity::{
    FIRST_RTT as FIRST, GOODPUT, JITTER, LOST, RELIABILITY, RTT_MEAN, RTT_P99, SHARE, TENS_LEAST, TENS_MOST, WIRE,
};

pub(super) static ACCUMULATED: Figure = Figure {
    id: "000-accumulated",
    title: "Accumulated loss over hops",
    source: "Document 000, accumulated loss rate of a path of six hops",
    question: "How much of what is sent without any coding is left after one to six lossy links?",
    setup: "Plain datagrams (mode transparent), 1000 a second of 1000 bytes, over links of 20 Mbit/s and 0.5 ms with routers between them. Losses begin in second 2.",
    runs: &[runs!("paper/000-accumulated.toml")],
    tables: &[Table {
        quantity: &LOST,
        statistic: Statistic::Mean,
        columns: "hops",
        besides: &[Beside { name: "1 - (1-p)^n", kind: Kind::Equation(equation::lost_share), is_rival: false }],
    }],
    contender: None,
    extras: &[],
    chart: Chart::Lines { x: "hops", x_name: "hops", logarithmic: (false, false), plane: None },
};

pub(super) static LATENCY: Figure = Figure {
    id: "000-latency",
    title: "Three hops, messages: latency cases 1 to 3",
    source: "Document 000, figures 1.3 to 1.5",
    question: "How late are 100 messages a second over three links of 200 Mbit/s and 5 ms +- 1 ms?",
    setup: "Messages that are echoed: 1024 bytes without loss (case 1), 1024 bytes with 2 % per link (case 2), 128 bytes with 2 % (case 3). Means of ten consecutive round trips. There messages went by TCP through a proxy, here by noctule itself. `recode`: relays are noctule nodes, `ip`: routers.",
    runs: &[runs!(
        "multi-hop-messages.toml",
        &[&[("workload", "messages:100/s:1024B")], &[("workload", "messages:100/s:128B"), ("loss", "2%")],]
    )],
    tables: &[
        Table {
            quantity: &TENS_MOST,
            statistic: Statistic::Mean,
            columns: "relays",
            besides: &[published!("BATS", "000-latency-most.csv")],
        },
        Table {
            quantity: &TENS_LEAST,
            statistic: Statistic::Mean,
            columns: "relays",
            besides: &[published!("BATS", "000-latency-least.csv")],
        },
        Table { quantity: &RTT_MEAN, statistic: Statistic::Mean, columns: "relays", besides: &[] },
        Table { quantity: &RTT_P99, statistic: Statistic::Mean, columns: "relays", besides: &[] },
        Table { quantity: &WIRE, statistic: Statistic::Mean, columns: "relays", besides: &[] },
    ],
    contender: Some(Contender { key: "relays", ours: "recode" }),
    extras: &[],
    chart: Chart::Course { course: Course::RoundTrips, plane: Some("relays") },
};

pub(super) static OVERLOAD: Figure = Figure {
    id: "000-overload",
    title: "Six hops, congestion control off, load raised past the capacity",
    source: "Document 000, source rate limit and metrics: reliability, link rates, loss and recoding per batch",
    question: "What arrives, and what do links and relays carry, when the source is raised past what the links can take and nothing holds it back?",
    setup: "Six links of 10 Mbit/s and 0.5 ms lose 10 % each from second 2 on. Messages of 1380 bytes (btp, 200 ms of lifetime) are echoed. Their load is a share of what a link can carry (the case, in %). Congestion control is off (`none`), and as usual for comparison (`model`). The document has 300 Mbit/s.",
    runs: &[runs!("paper/000-overload.toml")],
    tables: &[
        Table { quantity: &RELIABILITY, statistic: Statistic::Mean, columns: "cc", besides: &[] },
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "cc", besides: &[] },
        Table { quantity: &WIRE, statistic: Statistic::Mean, columns: "cc", besides: &[] },
    ],
    contender: Some(Contender { key: "cc", ours: "model" }),
    extras: &[Extra::Links, Extra::Batches],
    chart: Chart::Lines { x: "case", x_name: "offered load (% of a link's capacity)", logarithmic: (false, false), plane: None },
};

pub(super) static SIX_HOPS: Figure = Figure {
    id: "000-six-hops",
    title: "Six hops, throughput over loss",
    source: "Document 000, throughput of six hops of 300 Mbit/s",
    question: "What does a bulk flow get over six links that lose up to 20 % each?",
    setup: "As published: 300 Mbit/s, 1 ms, losses on every link and in both directions from second 6 of 60. `recode`: relays are noctule nodes, `ip`: routers, `proxy`: a chain of QUIC connections with BBR.",
    runs: &[runs!("multi-hop-six.toml")],
    tables: &[
        Table {
            quantity: &GOODPUT,
            statistic: Statistic::Mean,
            columns: "relays",
            besides: &[
                published!("BATS (BTP, BRTP)", "000-six-hops-bats.csv"),
                published!("plain UDP", "000-six-hops-udp.csv"),
                Beside { name: "cut-set bound", kind: Kind::Equation(equation::limit_mbit), is_rival: false },
            ],
        },
        Table { quantity: &SHARE, statistic: Statistic::Mean, columns: "relays", besides: &[] },
        Table { quantity: &WIRE, statistic: Statistic::Mean, columns: "relays", besides: &[] },
    ],
    contender: Some(Contender { key: "relays", ours: "recode" }),
    extras: &[],
    chart: Chart::Lines { x: "loss", x_name: "loss on every link (%)", logarithmic: (false, false), plane: None },
};

pub(super) static THREE_HOPS: Figure = Figure {
    id: "000-three-hops",
    title: "Three hops, end-to-end throughput",
    source: "Document 000, end-to-end throughput measurement",
    question: "What does a bulk flow get over three links of 200 Mbit/s, 5 ms +- 1 ms, that lose 2 % each?",
    setup: "Losses in both directions from second 3 on, 22 s counted. QUIC stands for TCP with the same control: the published TCP is CUBIC.",
    runs: &[runs!("paper/000-three-hops.toml")],
    tables: &[
        Table {
            quantity: &GOODPUT,
            statistic: Statistic::Mean,
            columns: "",
            besides: &[published!("published (BATS, TCP)", "000-three-hops.csv")],
        },
        Table { quantity: &SHARE, statistic: Statistic::Mean, columns: "", besides: &[] },
    ],
    contender: Some(Contender { key: "case", ours: "noctule" }),
    extras: &[],
    chart: Chart::Course { course: Course::Goodput, plane: None },
};

pub(super) static FIRST_RTT: Figure = Figure {
    id: "001-first-rtt",
    title: "Round trip of the first message",
    source: "Document 001, figures 3.3 and 3.7, fifteen samples",
    question: "How long does it take from nothing to the echo of a first message?",
    setup: "Links of 100 Mbit/s and 10 ms; the time begins when the connecting end does, handshake included. Over three hops the links of the relays are up before. The document draws the values and gives none.",
    runs: &[runs!("paper/001-first-rtt.toml")],
    tables: &[Table {
        quantity: &FIRST,
        statistic: Statistic::Mean,
        columns: "hops",
        besides: &[Beside {
            name: "TCP without loss, two round trips",
            kind: Kind::Equation(equation::two_round_trips_ms),
            is_rival: false,
        }],
    }],
    contender: None,
    extras: &[],
    chart: Chart::Lines { x: "loss", x_name: "loss per link (%)", logarithmic: (false, false), plane: None },
};

pub(super) static TABLE: Figure = Figure {
    id: "001-matrix",
    title: "One hop, 100 Mbit/s, loss and latency",
    source: "Document 001, table 3.4.2 and figure 3.4.2",
    question: "What does a bulk flow get of 100 Mbit/s at 0 to 10 % loss and 10 to 110 ms one way?",
    setup: "Loss in both directions, a queue of one BDP.",
    runs: &[runs!("bulk-grid.toml")],
    tables: &[
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "delay", besides: &[published!("BRTP", "001-table-3.4.2.csv")] },
        Table { quantity: &SHARE, statistic: Statistic::Mean, columns: "delay", besides: &[] },
    ],
    contender: None,
    extras: &[],
    chart: Chart::Matrix,
};

pub(super) static RTT_DISTRIBUTION: Figure = Figure {
    id: "001-rtt-cdf",
    title: "Round trips of messages, distribution",
    source: "Document 001, figures 3.1 and 3.5",
    question: "How many of 100 messages a second are back after a time?",
    setup: "Messages of 512 bytes, 100 a second, echoed, over one and three links of 100 Mbit/s, 10 ms, 5 % each, relays recode. There they were TCP messages through proxies; here they go by noctule itself. The document draws the values and gives none.",
    runs: &[runs!("paper/001-rtt.toml")],
    tables: &[
        Table { quantity: &RTT_MEAN, statistic: Statistic::Mean, columns: "hops", besides: &[] },
        Table { quantity: &RTT_P99, statistic: Statistic::Mean, columns: "hops", besides: &[] },
        Table { quantity: &WIRE, statistic: Statistic::Mean, columns: "hops", besides: &[] },
    ],
    contender: None,
    extras: &[],
    chart: Chart::Course { course: Course::Distribution, plane: None },
};

pub(super) static RTT_OVER_TIME: Figure = Figure {
    id: "001-rtt-time",
    title: "Round trips of messages, over time",
    source: "Document 001, figures 3.2 and 3.6",
    question: "How steady are the round trips of 100 messages a second?",
    setup: "The runs of 001-rtt-cdf, means of ten consecutive messages.",
    runs: &[runs!("paper/001-rtt.toml")],
    tables: &[
        Table { quantity: &TENS_MOST, statistic: Statistic::Mean, columns: "hops", besides: &[] },
        Table { quantity: &TENS_LEAST, statistic: Statistic::Mean, columns: "hops", besides: &[] },
    ],
    contender: None,
    extras: &[],
    chart: Chart::Course { course: Course::RoundTrips, plane: None },
};

pub(super) static THROUGHPUT: Figure = Figure {
    id: "001-throughput",
    title: "Throughput over time, one and three hops",
    source: "Document 001, figures 3.4 and 3.8",
    question: "What does one bulk flow get over links of 100 Mbit/s, 10 ms, that lose 5 % each?",
    setup: "30 s counted. QUIC stands for TCP with the same control over routers; the published contenders are programs over real namespaces.",
    runs: &[runs!("paper/001-throughput.toml")],
    tables: &[Table {
        quantity: &GOODPUT,
        statistic: Statistic::Mean,
        columns: "hops",
        besides: &[published!("published (BRTP by proxy, QUIC)", "001-three-hops.csv")],
    }],
    contender: Some(Contender { key: "case", ours: "noctule" }),
    extras: &[],
    chart: Chart::Course { course: Course::Goodput, plane: Some("hops") },
};

pub(super) static UDP: Figure = Figure {
    id: "001-udp",
    title: "Datagrams over btp",
    source: "Document 001, figure 3.4.1, and the claim of 99 % up to 30 % loss",
    question: "How many datagrams arrive in time over a link that loses 20 and 30 %?",
    setup: "50 Mbit/s of datagrams of 1380 bytes over 100 Mbit/s, 10 ms, echoed; a lifetime of 200 ms. `plain`: the same without coding (mode transparent).",
    runs: &[runs!("paper/001-udp.toml")],
    tables: &[
        Table { quantity: &RELIABILITY, statistic: Statistic::Mean, columns: "loss", besides: &[published!("BTP", "001-udp.csv")] },
        Table { quantity: &JITTER, statistic: Statistic::Mean, columns: "loss", besides: &[] },
        Table { quantity: &WIRE, statistic: Statistic::Mean, columns: "loss", besides: &[] },
    ],
    contender: Some(Contender { key: "case", ours: "btp" }),
    extras: &[],
    chart: Chart::Lines { x: "loss", x_name: "loss (%)", logarithmic: (false, false), plane: None },
};
