//! The inputs that fuzzing found worth keeping run through the same entry points here, so that they never rot (`fuzz/run`).

#[path = "../../../../../fuzz/entries/proto/mod.rs"]
mod entries;

#[test]
fn every_input_of_the_corpus_passes() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, run) in entries::ALL {
        let inputs: Vec<_> = std::fs::read_dir(corpus.join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{target} has a corpus");
        for input in inputs {
            println!("{}", input.display());
            run(&std::fs::read(input).unwrap());
        }
    }
}

#[test]
fn an_input_of_nothing_passes() {
    for (_, run) in entries::ALL {
        run(&[]);
    }
}

/// Inputs of any bytes, the same each time: what no corpus remembers.
#[test]
fn inputs_at_random_pass() {
    use rand_chacha::ChaCha12Rng;
    use rand_core::{Rng, SeedableRng};
    let rounds = std::env::var("RANDOM_INPUTS").map_or(100, |n| n.parse().unwrap());
    for (target, run) in entries::ALL {
        for seed in 0..rounds {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            let mut input = vec![0; (rng.next_u32() % 600) as usize];
            rng.fill_bytes(&mut input);
            println!("{target} {seed}");
            run(&input);
        }
    }
}
