//! What the far end of a session says on its control flow, one message for each.

use super::neighbour::Duo;
use super::{Cost, Measured, hold};
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{Seq, SessionKey};
use crate::options::{FlowKind, MessageOptions, Mode};
use crate::session::control::{SessionFrame, SessionLimits, Totals};
use crate::session::{SendHalf, SendLimits, control_options};
use crate::units::Duration;
use crate::wire::frame::{Coded, Coefficients, FlowOpen, Frame};

/// Messages that a row is measured over.
const EACH: usize = 8;

/// What the handshake of the link has granted.
fn limits() -> SessionLimits {
    SessionLimits { max_flows: 4096, ..SessionLimits::default() }
}

/// What opens a session of the hostile node, and the packet of its control flow that says something.
fn talk(d: &mut Duo, frame: &SessionFrame) -> [Vec<u8>; 2] {
    let n = d.fresh();
    let open = FlowOpen { kind: FlowKind::OrderedMessages, batch_size: 8, ..d.open(SessionKey(n), 0, n) };
    let mut source = SendHalf::new(&control_options(), SendLimits { buffer: 65536, max_message: 65536 });
    let mut message = Vec::new();
    frame.emit(&mut message);
    source.send_message(d.now, message.into(), MessageOptions::default()).unwrap();
    let mut symbol = Vec::new();
    source.poll_symbol(d.now, 1300).unwrap().symbol.write(&mut symbol);
    let coded = Coded { flow: open.label, base: Seq(0), n: 1, coefficients: Coefficients::Index(0), symbol: &symbol };
    let mut packets = [Vec::new(), Vec::new()];
    Frame::FlowOpen(open).emit(&mut packets[0]);
    Frame::Coded(coded).emit(&mut packets[1]);
    packets
}

fn rows(beside: usize) -> Measured {
    let totals = Totals::default;
    let reason = || CloseReason::local(Code::NoError, Layer::Application, "");
    let frames = [
        ("PARAMS", SessionFrame::Params(limits())),
        ("ACCEPT", SessionFrame::Accept),
        ("FLOW_DELIVERED", SessionFrame::FlowDelivered { index: 1, packets: 1 }),
        ("RESET", SessionFrame::Reset { index: 1, mode: Mode::Brtp, code: 7 }),
        ("STOP", SessionFrame::Stop { index: 1, code: 7 }),
        ("FITS", SessionFrame::Fits { symbol: 1200 }),
        ("END", SessionFrame::End { index: 1, packets: 1 << 40 }),
        ("SKIP", SessionFrame::Skip { index: 1, floor: 1 << 40 }),
        ("POLLUTED", SessionFrame::Polluted { index: 1, packets: 1 << 40 }),
        ("PART_DELIVERED", SessionFrame::PartDelivered { index: 1, part: 1 << 40, packets: 1 }),
        ("WINDOW", SessionFrame::Window { index: 1, limit: 1 << 40 }),
        ("REKEY", SessionFrame::Rekey { generation: 1, step: 0, message: vec![9; 48] }),
        ("KEYS", SessionFrame::Keys { generation: 1, is_last: false, firsts: Vec::new() }),
        ("CLOSE", SessionFrame::Close { reason: reason(), linger: Duration::ZERO, totals: totals() }),
        ("CLOSED", SessionFrame::Closed { all_received: true, totals: totals() }),
    ];
    let mut rows = Measured::new();
    let mut d = Duo::beside(beside);
    for (name, frame) in frames {
        let costs: Vec<Cost> = (0..EACH)
            .map(|_| {
                let [first, second] = talk(&mut d, &frame);
                d.cost_of_second(first, second)
            })
            .collect();
        rows.push((name, Cost::of_several(&costs)));
    }
    rows
}

#[test]
fn what_a_far_end_can_cost_is_what_the_table_says() {
    hold("3", &rows(10), &rows(1000));
}
