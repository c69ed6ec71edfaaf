//! Which flow goes next: deficit round robin within a class, latency before bulk but at most half of a busy link (P17).

use crate::ids::FlowLabel;
use crate::options::Class;
use std::collections::VecDeque;

/// Bytes that a flow may send per turn.
const QUANTUM: i64 = 3000;
/// How far the latency class may run ahead of its half while bulk flows wait, in bytes.
const LATENCY_LEAD: i64 = 64 * 1024;

/// Classes whose flows a path may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) latency: bool,
    pub(crate) bulk: bool,
}

impl Wanted {
    pub(crate) const ALL: Self = Self { latency: true, bulk: true };
}

/// Rings of flows that have something to send. A flow is in at most one ring, once; its owner keeps the flag.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    latency: VecDeque<FlowLabel>,
    bulk: VecDeque<FlowLabel>,
    /// Bytes that the latency class sent beyond the bulk class since both were waiting.
    lead: i64,
}

impl Schedule {
    /// Appends a flow to its ring.
    pub(crate) fn push(&mut self, label: FlowLabel, class: Class) {
        match class {
            Class::Latency => self.latency.push_back(label),
            Class::Bulk => self.bulk.push_back(label),
        }
    }

    /// All flows that wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FlowLabel> {
        self.latency.iter().chain(&self.bulk)
    }

    /// Flows of the latency class that wait.
    pub(crate) fn latency(&self) -> impl Iterator<Item = &FlowLabel> {
        self.latency.iter()
    }

    /// Flows of the bulk class that wait.
    pub(crate) fn bulk(&self) -> impl Iterator<Item = &FlowLabel> {
        self.bulk.iter()
    }

    /// Takes the flow whose turn it is among the wanted. The owner gives it back with [`Schedule::again`] if it still has work.
    pub(crate) fn pop(&mut self, wanted: Wanted) -> Option<FlowLabel> {
        match (wanted.latency, wanted.bulk) {
            (true, true) => {}
            (true, false) => return self.latency.pop_front(),
            (false, true) => return self.bulk.pop_front(),
            (false, false) => return None,
        }

        if self.bulk.is_empty() || self.latency.is_empty() {
            self.lead = 0;
        }
        let is_latency_first = !self.latency.is_empty() && (self.bulk.is_empty() || self.lead < LATENCY_LEAD);
        if is_latency_first { self.latency.pop_front() } else { self.bulk.pop_front() }
    }

    /// The turn of one of `siblings` flows that take the turns of one has come: true if it has not saved enough for it, and waits for the next.
    pub(crate) fn defers(&mut self, label: FlowLabel, class: Class, siblings: u32, balance: &mut i64) -> bool {
        let waits = siblings > 1 && *balance < 0;
        if waits {
            *balance += QUANTUM / i64::from(siblings);
            self.push(label, class);
        }
        waits
    }

    /// The flow that was taken sent `bytes` and has more to send: it keeps its turn while its balance lasts, then goes to the back of its ring.
    /// `siblings`: so many flows share what one may send per turn.
    pub(crate) fn again(&mut self, label: FlowLabel, class: Class, bytes: usize, siblings: u32, balance: &mut i64) {
        let bytes = bytes as i64;
        let (ring, other) = match class {
            Class::Latency => (&mut self.latency, &self.bulk),
            Class::Bulk => (&mut self.bulk, &self.latency),
        };
        if !other.is_empty() {
            self.lead = (self.lead + if class == Class::Latency { bytes } else { -bytes }).max(0);
        }
        *balance -= bytes;
        if *balance > 0 {
            ring.push_front(label);
        } else {
            *balance += QUANTUM / i64::from(siblings.max(1));
            ring.push_back(label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(classes: &[Class], packet: &[usize], turns: usize) -> Vec<u64> {
        let mut s = Schedule::default();
        let mut balance = vec![0i64; classes.len()];
        let mut sent = vec![0u64; classes.len()];
        for (i, c) in classes.iter().enumerate() {
            s.push(FlowLabel(i as u64), *c);
        }
        for _ in 0..turns {
            let i = s.pop(Wanted::ALL).unwrap().0 as usize;
            s.again(FlowLabel(i as u64), classes[i], packet[i], 1, &mut balance[i]);
            sent[i] += packet[i] as u64;
        }
        sent
    }

    #[test]
    fn flows_of_one_class_share_bytes_whatever_their_packet_size() {
        let sent = run(&[Class::Bulk, Class::Bulk], &[1400, 200], 8000);
        let ratio = sent[0] as f64 / sent[1] as f64;
        assert!((0.9..1.1).contains(&ratio), "{sent:?}");
    }

    #[test]
    fn three_parts_of_a_flow_take_what_another_flow_takes() {
        let mut s = Schedule::default();
        let (mut balance, mut sent) = ([0i64; 4], [0u64; 4]);
        (0..4).for_each(|i| s.push(FlowLabel(i), Class::Bulk));
        for _ in 0..20_000 {
            let label = s.pop(Wanted::ALL).unwrap();
            let i = label.0 as usize;
            let siblings = if i < 3 { 3 } else { 1 };
            if !s.defers(label, Class::Bulk, siblings, &mut balance[i]) {
                s.again(label, Class::Bulk, 1400, siblings, &mut balance[i]);
                sent[i] += 1;
            }
        }
        let parts: u64 = sent[..3].iter().sum();
        assert!((0.9..1.1).contains(&(parts as f64 / sent[3] as f64)), "{sent:?}");
    }

    #[test]
    fn latency_class_is_capped_at_half_of_a_busy_link() {
        let sent = run(&[Class::Latency, Class::Bulk], &[1400, 1400], 10_000);
        let share = sent[0] as f64 / (sent[0] + sent[1]) as f64;
        assert!((0.45..0.56).contains(&share), "{sent:?}");
    }
}
