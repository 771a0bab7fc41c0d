//! Error and loss: how far the released values are from the true ones, for unit noise and for unit privacy.
//!
//! Row `t` of `B = AC⁻¹` gives the error of released value `t`; loss is error times sensitivity.

use crate::error::{Error, Result};
use crate::factorization::rows::{QUADRATIC_LIMIT, for_each_noising_row};
use crate::factorization::{CUBIC_LIMIT, Factorization, LINEAR_LIMIT};
use crate::privacy::participation::Participation;
use crate::privacy::sensitivity::{Adjacency, Sensitivity};
use crate::strategy::Strategy;
use crate::strategy::series;
use crate::strategy::tree::Estimator;
use crate::utility::workload::{Filter, Workload};
use std::collections::VecDeque;

/// Errors of a factorisation for a workload, for noise of unit standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// The largest row norm of `B`.
    pub max: f64,
    /// The root mean square of the row norms.
    pub rms: f64,
}

/// Sensitivity, errors and their products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// How far one unit can move `CG`.
    pub sensitivity: Sensitivity,
    /// Errors for unit noise.
    pub errors: Errors,
}

impl Loss {
    /// Sensitivity times the largest error.
    pub fn max_loss(&self) -> f64 {
        self.sensitivity.value * self.errors.max
    }

    /// Sensitivity times the root-mean-square error.
    pub fn rms_loss(&self) -> f64 {
        self.sensitivity.value * self.errors.rms
    }
}

impl Factorization {
    /// The loss for a workload under a participation schema.
    pub fn loss(
        &self,
        workload: &Workload,
        participation: &Participation,
        adjacency: Adjacency,
    ) -> Result<Loss> {
        Ok(Loss { sensitivity: self.sensitivity(participation, adjacency)?, errors: self.errors(workload)? })
    }

    /// Largest and root-mean-square error.
    pub fn errors(&self, workload: &Workload) -> Result<Errors> {
        let n = self.num_steps();
        if let (Some(blt), Workload::Prefix) = (self.plain_blt(), workload) {
            return Ok(Errors {
                max: blt.max_error_squared(n as u64).sqrt(),
                rms: blt.mean_error_squared(n as u64).sqrt(),
            });
        }
        // Independent noise: prefix t has t + 1 of them.
        if let (Some([coef]), Workload::Prefix) = (self.few_coefs()?.as_deref(), workload) {
            let n = n as f64;
            return Ok(Errors { max: n.sqrt() / coef.abs(), rms: (0.5 * (n + 1.0)).sqrt() / coef.abs() });
        }
        let squared = self.per_query_error_squared(workload)?;
        let max = squared.iter().copied().fold(0.0, f64::max).sqrt();
        Ok(Errors { max, rms: (squared.iter().sum::<f64>() / squared.len() as f64).sqrt() })
    }

    /// The square of every row's norm of `B`.
    pub fn per_query_error_squared(&self, workload: &Workload) -> Result<Vec<f64>> {
        self.check_size("the error of every step", LINEAR_LIMIT, "n")?;
        if let Workload::Toeplitz(coefs) = workload {
            series::check_product(coefs.len(), self.num_steps())?;
        }
        if self.is_plain()
            && let Some(coefs) = self.noising_coefs()?
            && let Some(decoder) = workload.apply(&coefs)
        {
            return Ok(running_sum_of_squares(&decoder));
        }
        if self.is_plain()
            && workload == &Workload::Prefix
            && let Some(tree) = self.tree(&(0..self.num_steps()))?
        {
            return Ok(tree.per_query_error_squared());
        }
        let parts = Parts::of(workload, self.num_steps())?;
        match parts.base.filter() {
            Some(filter) => self.filtered_errors(&filter, &parts),
            None => self.dense_errors(&parts),
        }
    }

    /// Rows of `C⁻¹` as they come, through the workload's recursion: n² operations, n memory.
    fn filtered_errors(&self, filter: &Filter, parts: &Parts<'_>) -> Result<Vec<f64>> {
        let mut errors = Vec::with_capacity(self.num_steps());
        let mut state: Option<Recursion> = None;
        self.for_each_row(|t, first, row, width| {
            let state = state.get_or_insert_with(|| Recursion::new(filter, width));
            let out = state.step(first, row, parts.column(t));
            let error = series::dot(out, out);
            errors.push(error * parts.row(t).powi(2));
        })?;
        Ok(errors)
    }

    fn dense_errors(&self, parts: &Parts<'_>) -> Result<Vec<f64>> {
        self.check_size("the error for a workload that is any matrix", CUBIC_LIMIT, "n³/3")?;
        let matrix = parts.base.matrix(self.num_steps())?;
        let (mut rows, mut width) = (Vec::new(), 0);
        self.for_each_row(|_, first, row, all| {
            let mut full = vec![0.0; first];
            full.extend_from_slice(row);
            rows.push(full);
            width = all;
        })?;
        let error = |t: usize| {
            let mut out = vec![0.0; width];
            for (s, weight) in matrix.row(t).iter().enumerate() {
                let weight = weight * parts.column(s);
                out.iter_mut().zip(&rows[s]).for_each(|(out, value)| *out += weight * value);
            }
            out.iter().map(|value| value * value).sum::<f64>() * parts.row(t).powi(2)
        };
        Ok((0..self.num_steps()).map(error).collect())
    }

    /// `visit(t, first, row, width)` for the rows of the noising matrix, trees included: theirs have a column per node.
    fn for_each_row(&self, mut visit: impl FnMut(usize, usize, &[f64], usize)) -> Result<()> {
        let n = self.num_steps();
        if !matches!(self.strategy(), Strategy::Tree(Estimator::Plain | Estimator::Streaming)) {
            return for_each_noising_row(self, |t, first, row| visit(t, first, row, n));
        }
        self.check_size("an n × n quantity", QUADRATIC_LIMIT / 4, "n²")?;
        // Nodes of all segments, numbered as they come.
        let mut numbers = std::collections::HashMap::new();
        let mut rows: Vec<Vec<(usize, f64)>> = Vec::with_capacity(n);
        for (number, segment) in self.segments().enumerate() {
            let tree = self.tree(&segment)?.expect("a tree strategy");
            for t in 0..segment.len() {
                let divisor = self.divisor(segment.start + t);
                let column = |(node, weight)| {
                    let next = numbers.len();
                    (*numbers.entry((number, node)).or_insert(next), divisor * weight)
                };
                rows.push(tree.noising_row(t).into_iter().map(column).collect());
            }
        }
        let width = numbers.len();
        for (t, row) in rows.into_iter().enumerate() {
            let mut full = vec![0.0; width];
            row.into_iter().for_each(|(column, weight)| full[column] = weight);
            visit(t, 0, &full, width);
        }
        Ok(())
    }
}

/// A workload taken apart into what is scaled and by what.
struct Parts<'a> {
    base: &'a Workload,
    rows: Vec<f64>,
    columns: Vec<f64>,
}

impl Parts<'_> {
    fn of(workload: &Workload, n: usize) -> Result<Parts<'_>> {
        let Workload::Scaled { base, rows, columns } = workload else {
            return Ok(Parts { base: workload, rows: Vec::new(), columns: Vec::new() });
        };
        let mut parts = Parts::of(base, n)?;
        for (name, own, factors) in
            [("row weights", &mut parts.rows, rows), ("learning rates", &mut parts.columns, columns)]
        {
            if factors.is_empty() {
                continue;
            }
            if factors.len() != n {
                let name = format!("number of {name}");
                return Err(Error::parameter(name, factors.len(), format!("{n}, one per step")));
            }
            own.resize(n, 1.0);
            own.iter_mut().zip(factors).for_each(|(own, factor)| *own *= factor);
        }
        Ok(parts)
    }

    fn row(&self, t: usize) -> f64 {
        self.rows.get(t).copied().unwrap_or(1.0)
    }

    fn column(&self, t: usize) -> f64 {
        self.columns.get(t).copied().unwrap_or(1.0)
    }
}

/// The workload's recursion on whole rows: `y_t = Σ numerator_i x_{t−i}`, then one leaky sum per pole.
struct Recursion<'a> {
    filter: &'a Filter,
    /// Columns that any row has reached.
    begun: usize,
    /// As many rows as the numerator has coefficients, the youngest first, each with its first column.
    past: VecDeque<(usize, Vec<f64>)>,
    sums: Vec<Vec<f64>>,
}

impl Recursion<'_> {
    fn new(filter: &Filter, width: usize) -> Recursion<'_> {
        Recursion {
            filter,
            begun: 0,
            past: VecDeque::new(),
            sums: vec![vec![0.0; width]; filter.poles.len()],
        }
    }

    /// Touches only columns that have begun, and makes no list of that length: this is most of the time of n² quantities.
    fn step(&mut self, first: usize, row: &[f64], scale: f64) -> &[f64] {
        self.begun = self.begun.max(first + row.len());
        let oldest = self.past.len() == self.filter.numerator.len();
        let mut input = if oldest { self.past.pop_back().unwrap_or_default().1 } else { Vec::new() };
        input.clear();
        input.extend(row.iter().map(|value| scale * value));
        self.past.push_front((first, input));
        let (head, rest) = self.sums.split_first_mut().expect("a filter has a pole");
        if self.filter.poles[0] != 1.0 {
            head[..self.begun].iter_mut().for_each(|sum| *sum *= self.filter.poles[0]);
        }
        for (weight, (first, row)) in self.filter.numerator.iter().zip(&self.past) {
            head[*first..].iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
        }
        let mut last = &mut head[..self.begun];
        for (pole, sums) in self.filter.poles[1..].iter().zip(rest) {
            let sums = &mut sums[..self.begun];
            sums.iter_mut().zip(&*last).for_each(|(sum, value)| *sum = value + pole * *sum);
            last = sums;
        }
        last
    }
}

fn running_sum_of_squares(values: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    values
        .iter()
        .map(|value| {
            sum += value * value;
            sum
        })
        .collect()
}
