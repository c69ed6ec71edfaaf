//! Any payload: frames are read or refused, and what was read means the same when it is written again.

use noctule_proto::wire::Frames;

pub fn run(payload: &[u8]) {
    for frame in Frames::new(payload).flatten() {
        let _ = frame.to_string();
        let mut out = Vec::new();
        frame.emit(&mut out);
        let again: Vec<_> = Frames::new(&out).collect();
        assert_eq!(again, [Ok(frame)]);
    }
}
