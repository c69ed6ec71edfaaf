//! Document 004: Sphinx.

use super::{published, runs};
use crate::paper::figure::{Chart, Contender, Course, Figure, Statistic, Table};
use crate::paper::quantity::{BLOCK, BUFFERED, GOODPUT, JAIN, PACKETS, STALLED, VIDEO_MBIT, WIRE};

const NOCTULE: Option<Contender> = Some(Contender { key: "case", ours: "noctule" });

pub(super) static BLOCKS: Figure = Figure {
    id: "004-blocks",
    title: "Completion time of blocks over loss",
    source: "Document 004, figure 10",
    question: "When is a block of 100 KB complete, from the moment at which it was to be sent?",
    setup: "A block every 50 ms on a warm session over 10 Gbit/s, RTT 10 ms, loss in both directions. A block that waits for the one before it counts from when it was due; one that never arrives is not counted. There blocks followed each other as fast as the CPU went.",
    runs: &[runs!("paper/004-blocks.toml")],
    tables: &[
        Table {
            quantity: &BLOCK,
            statistic: Statistic::Mean,
            columns: "loss",
            besides: &[published!("published (Sphinx on several cores, TCP)", "004-blocks.csv")],
        },
        Table { quantity: &GOODPUT, statistic: Statistic::Mean, columns: "loss", besides: &[] },
        Table { quantity: &WIRE, statistic: Statistic::Mean, columns: "loss", besides: &[] },
    ],
    contender: NOCTULE,
    extras: &[],
    chart: Chart::Lines { x: "loss", x_name: "loss (%)", logarithmic: (false, true), plane: None },
};

pub(super) static FIVE_PAIRS: Figure = Figure {
    id: "004-five-pairs",
    title: "Five pairs of sender and receiver at once",
    source: "Document 004, section 4.1",
    question: "What do five flows of a kind get of one lossy link together, and how evenly?",
    setup: "Bulk over 200 Mbit/s, RTT 10 ms, loss in both directions, 12 s counted. There the link has 10 Gbit/s and the CPU is full.",
    runs: &[runs!("paper/004-five-pairs.toml")],
    tables: &[
        Table { quantity: &PACKETS, statistic: Statistic::Mean, columns: "loss", besides: &[] },
        Table { quantity: &JAIN, statistic: Statistic::Mean, columns: "loss", besides: &[] },
    ],
    contender: NOCTULE,
    extras: &[],
    chart: Chart::Lines { x: "loss", x_name: "loss (%)", logarithmic: (false, false), plane: None },
};

pub(super) static PACKETS_PER_SECOND: Figure = Figure {
    id: "004-pps",
    title: "Packets per second over loss and round trip",
    source: "Document 004, figure 9",
    question: "How many payloads of 1000 bytes a second arrive?",
    setup: "Bulk over 1 Gbit/s, RTT 10 and 50 ms, loss in both directions, 4 s counted. There the link has 10 Gbit/s and the figures are those of a full CPU; the simulator has none, so only what loss does can be compared.",
    runs: &[runs!("paper/004-pps.toml")],
    tables: &[Table { quantity: &PACKETS, statistic: Statistic::Mean, columns: "loss", besides: &[] }],
    contender: NOCTULE,
    extras: &[],
    chart: Chart::Lines { x: "loss", x_name: "loss (%)", logarithmic: (false, true), plane: Some("delay") },
};

pub(super) static VIDEO: Figure = Figure {
    id: "004-video",
    title: "A video's buffer over time",
    source: "Document 004, figure 11",
    question: "Does the buffer of a video run empty at 2 % loss and RTT 10 ms?",
    setup: "As much as goes over 100 Mbit/s into a buffer that 8 Mbit/s empty from the second after the first byte, counted by the second. The document replays a trace of D-LiTE, which is not in it, and does not say its bitrate.",
    runs: &[runs!("paper/004-video.toml")],
    tables: &[
        Table { quantity: &STALLED, statistic: Statistic::Mean, columns: "", besides: &[] },
        Table { quantity: &BUFFERED, statistic: Statistic::Mean, columns: "", besides: &[] },
    ],
    contender: NOCTULE,
    extras: &[],
    chart: Chart::Course { course: Course::Buffer(VIDEO_MBIT), plane: None },
};
