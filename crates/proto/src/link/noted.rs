//! Flows of a link that may have something, so that whether any has is known without asking all of them.
//!
//! A flow is noted when it changes and has it, once; whether it still has it is asked when it stands in front. So each change costs one question later, and what
//! a packet costs does not grow with the flows that wait, or idle (docs/decisions/0211).

use crate::ids::FlowLabel;
use std::collections::VecDeque;

/// Labels of flows that are gone may stay, so many and half as many as there are others.
const STALE: usize = 16;

/// See the module's documentation. Each flow keeps the flag that it is noted.
#[derive(Debug, Default)]
pub(super) struct Noted {
    labels: VecDeque<FlowLabel>,
    stale: usize,
}

impl Noted {
    /// A flow that is not noted has it.
    pub(super) fn note(&mut self, label: FlowLabel) {
        self.labels.push_back(label);
    }

    /// A noted flow is gone. `is_live`: whether a flow is still there.
    pub(super) fn leave(&mut self, is_live: impl Fn(FlowLabel) -> bool) {
        self.stale += 1;
        if self.stale > STALE + self.labels.len() / 2 {
            self.labels.retain(|label| is_live(*label));
            self.stale = 0;
        }
    }

    /// Whether any has it. `still_has` takes the flag from a flow that has not. Every flow that is asked in vain was noted once for it, so that this is no walk
    /// ([`crate::work`]).
    pub(super) fn any(&mut self, mut still_has: impl FnMut(FlowLabel) -> bool) -> bool {
        while let Some(label) = self.labels.front() {
            if still_has(*label) {
                return true;
            }
            self.labels.pop_front();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_it_is_found_and_those_that_have_it_no_more_are_asked_once() {
        let mut noted = Noted::default();
        (0..5).for_each(|n| noted.note(FlowLabel(n)));
        let mut asked = 0;
        assert!(noted.any(|label| {
            asked += 1;
            label.0 >= 3
        }));
        assert!(noted.any(|label| {
            asked += 1;
            label.0 >= 3
        }));
        assert_eq!(asked, 5);
        assert!(!noted.any(|_| false) && !noted.any(|_| panic!("nobody is left to ask")));
    }

    #[test]
    fn flows_that_are_gone_do_not_pile_up_behind_one_that_stays() {
        let mut noted = Noted::default();
        noted.note(FlowLabel(0));
        for n in 1..10_000 {
            noted.note(FlowLabel(n));
            noted.leave(|label| label.0 == 0);
        }
        assert!(noted.labels.len() <= 3 * STALE, "{}", noted.labels.len());
        assert!(noted.any(|label| label.0 == 0));
    }
}
