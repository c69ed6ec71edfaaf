//! From what a [`BlockDecoder`] holds to its missing packets, in four steps: number the unknowns, write down the equations, plan on
//! coefficients alone, and only if that succeeds touch the data.

use super::{Batch, BlockDecoder, weigh};
use crate::bats::{Profile, precode};
use crate::gf256::{RowTerm, kernels, mul};
use crate::inactivation::{Layout, Plan, System};
use alloc::vec;
use alloc::vec::Vec;

/// The columns of the system: the missing source packets in ascending order, then the parities.
struct Unknowns {
    /// Arena row of each column.
    rows: Vec<u32>,
    /// Column of each arena row below K + H, [`Unknowns::KNOWN`] where there is none.
    columns: Vec<u32>,
    /// How many of the columns are source packets.
    missing: usize,
}

impl Unknowns {
    const KNOWN: u32 = u32::MAX;

    fn new(profile: &Profile, known_at: &[u32]) -> Self {
        let mut rows: Vec<u32> = (0..).zip(known_at).filter(|(_, at)| **at == 0).map(|(j, _)| j).collect();
        let missing = rows.len();
        rows.extend(profile.packets() as u32..profile.rows() as u32);
        let mut columns = vec![Self::KNOWN; profile.rows()];
        for (column, row) in rows.iter().enumerate() {
            columns[*row as usize] = column as u32;
        }
        Self { rows, columns, missing }
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn parities(&self) -> core::ops::Range<u32> {
        self.missing as u32..self.count() as u32
    }
}

/// The equations, in the order of the system: those of the batches, then one for each parity.
struct Equations {
    system: System,
    /// Right-hand sides of the batches' equations as combinations of arena rows.
    sides: Vec<Vec<RowTerm>>,
    /// Source packets that became known after their batch began, still to be subtracted: equation, term.
    late: Vec<(u32, RowTerm)>,
}

/// One equation under construction: a sum of terms in which a column may occur more than once.
struct Sum {
    factors: Vec<u8>,
    touched: Vec<u32>,
}

impl Sum {
    fn new(columns: usize) -> Self {
        Self { factors: vec![0; columns], touched: Vec::new() }
    }

    fn add(&mut self, column: u32, factor: u8) {
        self.factors[column as usize] ^= factor;
        self.touched.push(column);
    }

    /// The entries, each column once; empty for the next equation afterwards.
    fn take(&mut self) -> impl Iterator<Item = RowTerm> {
        self.touched.sort_unstable();
        self.touched.dedup();
        let factors = &mut self.factors;
        let entries = self.touched.drain(..).map(|column| RowTerm { row: column, factor: core::mem::take(&mut factors[column as usize]) });
        entries.filter(|entry| entry.factor != 0)
    }
}

impl BlockDecoder {
    /// Solves for all missing packets if there are enough equations.
    pub(super) fn try_solve(&mut self) {
        if self.missing == 0 || self.equations < self.missing.max(self.enough) {
            return;
        }
        let unknowns = Unknowns::new(&self.profile, &self.known_at);
        let mut equations = self.equations_of_batches(&unknowns);
        self.add_parities(&unknowns, &mut equations.system);
        match equations.system.plan(unknowns.parities()) {
            Err(short) => self.enough = self.equations + short,
            Ok(plan) => self.solve(&unknowns, equations, &plan),
        }
    }

    /// One equation for each packet held of a batch that does not lie in its place already.
    fn equations_of_batches(&mut self, unknowns: &Unknowns) -> Equations {
        let mut equations = Equations { system: System::new(unknowns.count()), sides: Vec::new(), late: Vec::new() };
        let is_dense = self.profile.is_dense();
        let mut sum = Sum::new(unknowns.count());
        let mut support = core::mem::take(&mut self.support);
        for (&number, batch) in &self.batches {
            for r in 0..batch.basis.rank() {
                let (coefficients, weights) = batch.basis.reduced(r);
                if number < self.profile.systematic_batches() {
                    // Reduced rows of one entry are known packets; the others hold unknown ones only.
                    if coefficients.iter().filter(|c| **c != 0).count() < 2 {
                        continue;
                    }
                    let first = number as usize * self.profile.batch_size();
                    for (i, &factor) in coefficients.iter().enumerate().filter(|(_, c)| **c != 0) {
                        sum.add(unknowns.columns[first + i], factor);
                    }
                } else {
                    let equation = equations.sides.len() as u32;
                    for (index, &c) in coefficients.iter().enumerate().filter(|(_, c)| **c != 0) {
                        self.profile.support(number, index, &mut support);
                        self.add_support(&support, c, batch, unknowns, &mut sum, |term| equations.late.push((equation, term)));
                    }
                }
                equations.system.push(sum.take(), is_dense);
                equations.sides.push(weigh(weights, &batch.rows).collect());
            }
        }
        self.support = support;
        equations
    }

    /// `c` times the support of a repair packet: unknowns to `sum`, what became known after the batch began to `late`; what was known
    /// before has been subtracted on arrival.
    fn add_support(&self, support: &[RowTerm], c: u8, batch: &Batch, unknowns: &Unknowns, sum: &mut Sum, mut late: impl FnMut(RowTerm)) {
        for term in support {
            let factor = mul(term.factor, c);
            match unknowns.columns[term.row as usize] {
                Unknowns::KNOWN if self.known_at[term.row as usize] > batch.stamp => late(RowTerm { row: term.row, factor }),
                Unknowns::KNOWN => {}
                column => sum.add(column, factor),
            }
        }
    }

    /// One equation for each parity: itself and the missing packets in it give what the known packets contribute.
    fn add_parities(&self, unknowns: &Unknowns, system: &mut System) {
        let h = self.profile.parities() as usize;
        let column = |j: usize| Some(unknowns.columns[j]).filter(|c| *c != Unknowns::KNOWN).map(|c| c as usize);
        let precode = precode::columns(&self.profile, unknowns.missing, column);
        for (i, own) in unknowns.parities().enumerate() {
            let of_missing = (0..unknowns.missing).map(|column| RowTerm { row: column as u32, factor: precode[column * h + i] });
            system.push(of_missing.filter(|t| t.factor != 0).chain([RowTerm { row: own, factor: 1 }]), true);
        }
    }

    /// The data: right-hand sides into rows of their own, then the plan. Everything is known afterwards.
    fn solve(&mut self, unknowns: &Unknowns, equations: Equations, plan: &Plan) {
        let Equations { system, sides, late } = equations;
        let precode = if self.profile.parities() > 0 { 3 * self.profile.packets() } else { 0 };
        self.inactivations = plan.inactive();
        self.multiply_adds += plan.multiply_adds(&system) + late.len() + precode;
        let mut equation_row: Vec<u32> = sides.into_iter().map(|side| self.row_of_side(&side)).collect();
        self.subtract_late(&late, &equation_row);
        equation_row.extend(self.rows_of_parities());
        let layout = Layout { column_row: &unknowns.rows, equation_row: &equation_row, stride: self.stride };
        plan.execute(&system, &layout, &mut self.arena);
        for j in &unknowns.rows[..unknowns.missing] {
            self.learn(*j as usize);
        }
        self.batches.clear();
        self.parts.clear();
    }

    /// A row that holds this combination and may be overwritten.
    fn row_of_side(&mut self, side: &[RowTerm]) -> u32 {
        if let [RowTerm { row, factor: 1 }] = *side
            && row as usize >= self.profile.rows()
        {
            return row;
        }
        let row = self.new_row();
        self.combine_into(row, side);
        row as u32
    }

    fn subtract_late(&mut self, late: &[(u32, RowTerm)], equation_row: &[u32]) {
        let sources = self.profile.packets() * self.stride;
        let (known, rows) = self.arena.split_at_mut(sources);
        for (equation, term) in late {
            let row = equation_row[*equation as usize] as usize * self.stride - sources;
            kernels().mul_add(&mut rows[row..row + self.stride], &known[term.row as usize * self.stride..][..self.stride], term.factor);
        }
    }

    /// New rows with the parities of the known packets.
    fn rows_of_parities(&mut self) -> core::ops::Range<u32> {
        let h = self.profile.parities() as usize;
        let mut parities = vec![0; h * self.stride];
        let sources = &self.arena[..self.profile.packets() * self.stride];
        precode::parities(&self.profile, sources, self.stride, |j| self.known_at[j] != 0, &mut parities);
        let first = self.rows as u32;
        for parity in parities.chunks_exact(self.stride) {
            let row = self.new_row();
            self.write_row(row, parity);
        }
        first..self.rows as u32
    }
}
