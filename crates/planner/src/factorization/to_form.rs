//! From a factorisation to the engine's form, which makes the rows of `C⁻¹Z`.

use crate::error::Result;
use crate::factorization::Factorization;
use crate::strategy::Strategy;
use corrnoise_core::form::{Kernel, Regenerate, Term};
use corrnoise_core::{Family, Form};

/// A Toeplitz strategy with at most this many bands keeps a ring of outputs; with more, its rows are made again.
///
/// A ring of b bands moves 4·b bytes per parameter and step and keeps as many; making a row again costs about what moving 20 bytes
/// does, and keeps nothing. Beyond this the ring's memory is out of proportion to any model.
pub const MAX_RING_BANDS: usize = 1024;

/// Most steps whose tree nodes are listed: about a kilobyte each.
const LISTED_LIMIT: usize = 1 << 19;

impl Factorization {
    /// The engine's form: its stream is `C⁻¹Z`.
    pub fn form(&self) -> Result<Form> {
        let form = match self.strategy() {
            Strategy::Tree(_) => return self.tree_form(),
            Strategy::Identity => Form::independent(),
            Strategy::OneParameter { decay: 0.0 } => Form::independent(),
            Strategy::OneParameter { decay } => Form::blt(&[*decay], &[*decay])?,
            Strategy::Blt(blt) => Form::blt(blt.scale(), blt.decay())?,
            Strategy::Toeplitz(coefs) if self.num_bands() <= MAX_RING_BANDS => {
                Form::banded_toeplitz(&coefs[..self.num_bands()])?
            }
            Strategy::Banded(rows) => return self.banded_form(rows),
            Strategy::Dense(_) => return self.dense_form(),
            _ => {
                Form::regenerate(&trimmed(self.noising_coefs()?.expect("every other strategy is Toeplitz")))?
            }
        };
        let form = self.with_divisors(form)?;
        if self.restart_every() < self.num_steps() {
            return Ok(form.with_restarts(self.restart_every() as u64)?);
        }
        Ok(form)
    }

    /// Bytes of state per parameter that the engine needs.
    pub fn state_bytes_per_param(&self) -> Result<u64> {
        Ok(self.form()?.state_bytes_per_param())
    }

    /// Multiplies the form's own output scale by what columns are divided by.
    fn with_divisors(&self, form: Form) -> Result<Form> {
        if !self.has_scaled_columns() {
            return Ok(form);
        }
        let scale = (0..self.num_steps()).map(|t| form.output_scale(t as u64) * self.divisor(t)).collect();
        Ok(form.with_output_scale(scale)?)
    }

    /// Rows repeat in every segment; their ages end where the segment begins.
    fn banded_form(&self, rows: &[Vec<f64>]) -> Result<Form> {
        let repeated: Vec<Vec<f64>> =
            (0..self.num_steps()).map(|t| rows[t % self.restart_every()].clone()).collect();
        self.with_divisors(Form::banded(&repeated)?)
    }

    fn dense_form(&self) -> Result<Form> {
        let inverse = self.inverse()?;
        let row = |t: usize| inverse.row(t)[self.segment(t).start..].iter().rev().copied().collect();
        let rows: Vec<Vec<f64>> = (0..self.num_steps()).map(row).collect();
        Ok(Kernel::Regenerate(Regenerate::varying(&rows)?).into())
    }

    /// Causal trees list their nodes; the full one runs as its square factor, since its first step would read all nodes.
    fn tree_form(&self) -> Result<Form> {
        if self.strategy() == &Strategy::Tree(crate::strategy::tree::Estimator::Full) {
            return self.dense_form();
        }
        self.check_size("the list of tree nodes", LISTED_LIMIT, "n log n")?;
        let mut steps = Vec::with_capacity(self.num_steps());
        let mut used = 0;
        for segment in self.segments() {
            let tree = self.tree(&segment)?.expect("a tree strategy");
            let mut end = used;
            for t in 0..segment.len() {
                let divisor = self.divisor(segment.start + t);
                let term = |(node, weight): (u64, f64)| {
                    end = end.max(used + node + 1);
                    Term { family: Family::TreeNode, index: used + node, weight: divisor * weight }
                };
                steps.push(tree.noising_row(t).into_iter().map(term).collect());
            }
            // Every segment has nodes of its own.
            used = end;
        }
        Ok(Kernel::Regenerate(Regenerate::listed(&steps)?).into())
    }
}

/// Without the zeros at the end, of which the engine would make rows all the same.
fn trimmed(mut coefs: Vec<f64>) -> Vec<f64> {
    let len = 1 + coefs.iter().rposition(|coef| *coef != 0.0).unwrap_or(0);
    coefs.truncate(len);
    coefs
}
