//! Document 002: the evaluation of protocols for space links.

use super::runs;
use crate::paper::equation;
use crate::paper::figure::{Beside, Chart, Contender, Course, Figure, Kind, Statistic, Table};
use crate::paper::quantity::{BACK, GOODPUT, JAIN, RAMP, TRANSFER_RTTS};

const MATHIS_CURVE: Beside = Beside { name: "Mathis", kind: Kind::Equation(equation::mathis_mbit), is_rival: false };
const BY_ERRORS: Chart = Chart::Lines { x: "loss-model", x_name: "bit error rate", logarithmic: (true, true), plane: Some("delay") };
const MODEL: Option<Contender> = Some(Contender { key: "case", ours: "model" });

pub(super) static ACKNOWLEDGEMENTS: Figure = Figure {
    id: "002-ack-every",
    title: "A fixed rate, an acknowledgement every so many packets",
    source: "Document 002, slide 19 (every other packet)",
    question: "What does it cost to acknowledge more rarely?",
    setup: "10 MB at a fixed rate of 90 Mbit/s over 100 Mbit/s, packets of 1024 bytes, bit errors 1e-5, 20 runs. The receiver is asked for an acknowledgement every 1 to 128 packets (default 32). One also leaves 1 ms after the last, once 4250 bytes have come. About 11 packets come in 1 ms, so wishes for 32 and for 128 have the same effect. None waits longer than 25 ms.",
    runs: &[runs!("paper/002-ack-every.toml")],
    tables: &[
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "delay", besides: &[] },
        Table { quantity: &BACK, statistic: Statistic::Mean, columns: "delay", besides: &[] },
    ],
    contender: None,
    extras: &[],
    chart: Chart::Lines { x: "ack-every", x_name: "packets per acknowledgement", logarithmic: (true, false), plane: None },
};

pub(super) static DEVIATION: Figure = Figure {
    id: "002-deviation",
    title: "Standard deviation of thirty transfers",
    source: "Document 002, slide 13",
    question: "How much does the moment of the first error decide?",
    setup: "The runs of 002-throughput. The slide has TCP at a round trip of 250 ms.",
    runs: &[runs!("paper/002-throughput.toml")],
    tables: &[Table { quantity: &GOODPUT, statistic: Statistic::Deviation, columns: "loss-model", besides: &[] }],
    contender: None,
    extras: &[],
    chart: Chart::Lines { x: "loss-model", x_name: "bit error rate", logarithmic: (true, false), plane: Some("delay") },
};

pub(super) static MATHIS: Figure = Figure {
    id: "002-mathis",
    title: "Steady state beside the equation of Mathis",
    source: "Document 002, slides 10 and 11",
    question: "Do Reno's controls follow the equation, and what does the default control keep?",
    setup: "Bulk over 100 Mbit/s, packets of 1024 bytes, one-way delays of 5 and 125 ms, 300 s counted (model: 40 s). QUIC's packets have 1280 bytes: it has none below 1200.",
    runs: &[runs!("paper/002-mathis.toml")],
    tables: &[Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "loss-model", besides: &[MATHIS_CURVE] }],
    contender: MODEL,
    extras: &[],
    chart: BY_ERRORS,
};

pub(super) static OVERRUN: Figure = Figure {
    id: "002-overrun",
    title: "A receiver that is overrun",
    source: "Document 002, slide 18",
    question: "What comes of a rate setting above what the receiver takes?",
    setup: "10 MB, round trip 500 ms, packets of 1024 bytes, 20 runs. The receiver takes 40 Mbit/s with 256 KB of room; what comes faster is dropped, as by a host that cannot keep up. (There it was the receiving machine itself.) `model` sets no rate: it is a level line in the drawing.",
    runs: &[runs!("paper/002-overrun.toml")],
    tables: &[Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "", besides: &[] }],
    contender: Some(Contender { key: "cc", ours: "model" }),
    extras: &[],
    chart: Chart::Lines { x: "cc", x_name: "rate setting (Mbit/s)", logarithmic: (false, false), plane: None },
};

pub(super) static RATE: Figure = Figure {
    id: "002-rate",
    title: "A fixed rate over errors and delay",
    source: "Document 002, slide 19",
    question: "How tolerant of delay and errors is a fixed rate on a link of its own?",
    setup: "10 MB at 90 Mbit/s over 100 Mbit/s, packets of 1024 bytes, an acknowledgement asked for every other packet, 20 runs; first packet to last acknowledgement.",
    runs: &[runs!("paper/002-rate.toml")],
    tables: &[
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "loss-model", besides: &[] },
        Table { quantity: &TRANSFER_RTTS, statistic: Statistic::Mean, columns: "loss-model", besides: &[] },
    ],
    contender: None,
    extras: &[],
    chart: Chart::Lines { x: "loss-model", x_name: "bit error rate", logarithmic: (true, false), plane: None },
};

pub(super) static SLOW_START: Figure = Figure {
    id: "002-slow-start",
    title: "Slow start at a round trip of 250 ms",
    source: "Document 002, slides 4 and 12",
    question: "How long does each control take to fill a long link without errors?",
    setup: "Bulk over 100 Mbit/s, 125 ms one way, packets of 1024 bytes (QUIC: 1280), no loss, a queue of one BDP.",
    runs: &[runs!("paper/002-slow-start.toml")],
    tables: &[Table { quantity: &RAMP, statistic: Statistic::Mean, columns: "", besides: &[] }],
    contender: MODEL,
    extras: &[],
    chart: Chart::Course { course: Course::Goodput, plane: None },
};

pub(super) static THREE_FLOWS: Figure = Figure {
    id: "002-three-flows",
    title: "Three flows over 15 Mbit/s",
    source: "Document 002, slide 17",
    question: "What do three flows of a kind get together, and how evenly?",
    setup: "Bulk, 125 ms one way (the slide does not say its delay), packets of 1024 bytes (QUIC: 1280), 100 s counted, ten runs.",
    runs: &[runs!("paper/002-three-flows.toml")],
    tables: &[
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "loss-model", besides: &[] },
        Table { quantity: &JAIN, statistic: Statistic::Mean, columns: "loss-model", besides: &[] },
    ],
    contender: MODEL,
    extras: &[],
    chart: Chart::Lines { x: "loss-model", x_name: "bit error rate", logarithmic: (false, false), plane: None },
};

pub(super) static THROUGHPUT: Figure = Figure {
    id: "002-throughput",
    title: "Ten megabytes over bit errors and delay",
    source: "Document 002, slides 12, 14 and 15",
    question: "What does a single flow get from its first packet to its last acknowledgement?",
    setup: "10 MB over 100 Mbit/s, round trips of 10, 250 and 500 ms. Packets have 1024 bytes; those of QUIC, which stands for TCP, 1280. 30 runs each, 20 of the fixed rate, all kept. The slides draw the values and give none.",
    runs: &[runs!("paper/002-throughput.toml"), runs!("paper/002-rate.toml")],
    tables: &[
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "loss-model", besides: &[] },
        Table { quantity: &GOODPUT, statistic: Statistic::Deviation, columns: "loss-model", besides: &[] },
        Table { quantity: &TRANSFER_RTTS, statistic: Statistic::Mean, columns: "loss-model", besides: &[] },
    ],
    contender: MODEL,
    extras: &[],
    chart: BY_ERRORS,
};

pub(super) static TRANSACTIONS: Figure = Figure {
    id: "002-transactions",
    title: "Small transactions: command and control",
    source: "Document 002, slide 20",
    question: "Does the control matter for a new connection and a few bytes?",
    setup: "100 bytes to 10 KB over 100 Mbit/s, bit errors 1e-5, packets of 1024 bytes (QUIC: 1280), 30 runs. From the first packet of the handshake to the last acknowledgement, in round trips.",
    runs: &[runs!("paper/002-transactions.toml")],
    tables: &[Table { quantity: &TRANSFER_RTTS, statistic: Statistic::Mean, columns: "workload", besides: &[] }],
    contender: MODEL,
    extras: &[],
    chart: Chart::Lines { x: "workload", x_name: "bytes", logarithmic: (true, false), plane: Some("delay") },
};
