//! What decoders keep is bounded, whatever arrives: counted by the allocator. One test, because the counter is shared.

use noctule_codes::bats::{BlockDecoder, Profile, Received};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn block_decoder_stays_within_the_memory_that_its_documentation_states() {
    let (k, m, t) = (600, 16, 1280);
    let profile = Profile::new(k, m, 50).unwrap();
    let before = HELD.load(Ordering::Relaxed);
    let mut decoder = BlockDecoder::new(profile, t).unwrap();
    // One recoded packet each of thousands of repair batches: the dearest thing that a hostile relay can send.
    let (mut accepted, mut peak) = (0, 0);
    for batch in 0..3000 {
        let coefficients: Vec<u8> = (0..m).map(|i| (i as u32 * 7 + batch) as u8 | 1).collect();
        let received = decoder.receive(profile.systematic_batches() + batch, &coefficients, &[batch as u8; 1280]);
        accepted += usize::from(received == Received::Innovative);
        peak = peak.max(HELD.load(Ordering::Relaxed) - before);
        if decoder.is_complete() {
            break;
        }
    }
    assert!(accepted >= k, "the attack came to something: {accepted} packets");
    let packets = (2 * k + 300 + 16 * m) * t;
    let coefficients = (k + 256) * (3 * m * m + 3 * m + 400);
    // Solving takes the inactivation's matrices for a moment: they are gone when `receive` returns.
    assert!(peak <= packets + coefficients, "{peak} bytes held, {packets} + {coefficients} allowed");
}
