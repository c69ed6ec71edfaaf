//! Paths of one link that meet in one bottleneck share what one flow would have there (P7, docs/spec/multipath.md 5).

use super::Link;
use crate::congestion::Coupled;
use crate::ids::PathId;
use crate::path::Path;
use crate::switch::{self, Mechanism};
use crate::units::{Bandwidth, Duration, Time};
use smallvec::SmallVec;

/// Delays are compared so often.
const COMPARED: Duration = Duration::from_millis(500);
/// Paths learn each other's rates so often.
const TOLD: Duration = Duration::from_millis(20);
/// Correlation of the changes of two delays above which one queue makes both, and below which none does: 0.8 to 0.95 in one queue, at most 0.35 in
/// two that are filled by flows of one kind in the same way at the same time.
const ALIKE: f32 = 0.6;
const UNLIKE: f32 = 0.3;
/// Comparisons that speak for one queue, less those against it: as many make two paths one flow, and more are not remembered.
const BELIEVED: u8 = 3;
const MOST: u8 = 8;

/// What is known of two paths.
#[derive(Clone, Copy, Debug)]
struct Pair {
    paths: (PathId, PathId),
    is_coupled: bool,
    /// Comparisons for one queue less those against.
    score: u8,
}

/// Two paths, and how much their delays are alike.
type Likeness = ((PathId, PathId), Option<f32>);

/// Which paths meet in one bottleneck.
#[derive(Debug, Default)]
pub(super) struct Coupling {
    pairs: SmallVec<[Pair; 1]>,
    compared_at: Option<Time>,
    told_at: Option<Time>,
}

impl Coupling {
    fn pair(&mut self, paths: (PathId, PathId)) -> &mut Pair {
        let at = self.pairs.iter().position(|pair| pair.paths == paths).unwrap_or_else(|| {
            self.pairs.push(Pair { paths, is_coupled: false, score: 0 });
            self.pairs.len() - 1
        });
        &mut self.pairs[at]
    }

    /// Whether two paths are believed to meet.
    pub(super) fn are_coupled(&self, a: PathId, b: PathId) -> bool {
        let paths = (a.min(b), a.max(b));
        self.pairs.iter().any(|pair| pair.paths == paths && pair.is_coupled)
    }
}

impl Link {
    /// Compares the delays of the paths now and then, and tells those that meet in one bottleneck of each other.
    pub(super) fn couple_paths(&mut self, now: Time) {
        if self.paths.len() < 2 || switch::is_off(Mechanism::Coupling) {
            return;
        }
        let is_due = |at: Option<Time>, every| at.is_none_or(|at| now.since(at) >= every);
        if is_due(self.coupling.compared_at, COMPARED) {
            self.coupling.compared_at = Some(now);
            self.compare_paths();
        }
        if is_due(self.coupling.told_at, TOLD) {
            self.coupling.told_at = Some(now);
            let open: SmallVec<[(PathId, Bandwidth); 4]> =
                self.paths.values().filter(|p| p.is_open()).map(|p| (p.id(), p.own_rate())).collect();
            let coupling = &self.coupling;
            for path in self.paths.values_mut() {
                let id = path.id();
                let others = open.iter().filter(|(other, _)| *other != id && coupling.are_coupled(id, *other));
                let coupled = others.fold(Coupled::default(), |sum, (_, rate)| sum.and(*rate));
                path.couple(coupled);
            }
        }
    }

    fn compare_paths(&mut self) {
        let open: SmallVec<[&Path; 4]> = self.paths.values().map(|p| &**p).filter(|p| p.is_open()).collect();
        let mut found: SmallVec<[Likeness; 4]> = SmallVec::new();
        for (i, a) in open.iter().enumerate() {
            for b in &open[i + 1..] {
                let (a, b) = if a.id() < b.id() { (a, b) } else { (b, a) };
                found.push(((a.id(), b.id()), a.likeness(b)));
            }
        }
        self.coupling.pairs.retain(|pair| found.iter().any(|f| f.0 == pair.paths));
        for (paths, likeness) in found {
            let pair = self.coupling.pair(paths);
            match likeness {
                Some(likeness) if likeness > ALIKE => pair.score = (pair.score + 1).min(MOST),
                Some(likeness) if likeness >= UNLIKE => {}
                // A path that carries nothing takes nothing away from other flows.
                _ => pair.score = pair.score.saturating_sub(1),
            }
            pair.is_coupled = pair.score >= if pair.is_coupled { 1 } else { BELIEVED };
        }
    }
}
