//! The sequence of mutants that a seed stands for.

use crate::operators::Operator;
use crate::ptx::{Kernel, Module};

/// The generator SplitMix64, whose whole sequence follows from the seed.
pub struct Random(u64);

impl Random {
    /// A generator whose sequence is that of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits of the sequence.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`, which is not 0; the bias is far too small to show in the counts.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }
}

/// A module with one instruction changed.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The index of the module.
    pub module: usize,
    /// The index of the kernel in the module.
    pub kernel: usize,
    /// The operator that made the change.
    pub operator: Operator,
    /// The line in the module, counted from 0.
    pub line: usize,
    /// The line before the change.
    pub before: String,
    /// The line after the change.
    pub after: String,
}

/// The mutants that a run is limited to.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The modules by name; all if empty.
    pub modules: Vec<String>,
    /// The kernels by a part of their name (`bf16`, `stage`); all if empty.
    pub kernels: Vec<String>,
    /// The operators by name; all if empty.
    pub operators: Vec<String>,
    /// The lines of the module, counted from 1; all if empty.
    pub lines: Vec<usize>,
}

impl Filter {
    fn allows(list: &[String], name: &str, exact: bool) -> bool {
        list.is_empty()
            || list.iter().any(|part| if exact { part == name } else { name.ends_with(part.as_str()) })
    }

    /// Whether the filter admits a module.
    pub fn module(&self, name: &str) -> bool {
        Self::allows(&self.modules, name, true)
    }

    /// Whether the filter admits a kernel: `f16` does not match `bf16`.
    pub fn kernel(&self, name: &str) -> bool {
        let whole = name.strip_prefix("noise_").unwrap_or(name);
        Self::allows(&self.kernels, whole, true) || self.kernels.iter().any(|part| part == name)
    }

    fn operator(&self, operator: Operator) -> bool {
        Self::allows(&self.operators, operator.name(), true)
    }
}

/// An endless sequence of mutants. Module, kernel and operator are drawn evenly, so that rare kinds of instructions are not
/// outnumbered by the thousands of the cipher; then an instruction that the operator applies to, then a variant.
pub struct Draw<'m> {
    modules: &'m [Module],
    /// The module, kernel and operator, and the instructions that the operator applies to.
    strata: Vec<(usize, usize, Operator, Vec<usize>)>,
    random: Random,
}

impl<'m> Draw<'m> {
    /// The mutants of `modules` that `filter` admits, in the order of `seed`.
    pub fn new(modules: &'m [Module], filter: &Filter, seed: u64) -> Draw<'m> {
        let mut strata = Vec::new();
        for (m, module) in modules.iter().enumerate().filter(|(_, module)| filter.module(&module.name)) {
            for (k, kernel) in
                module.kernels.iter().enumerate().filter(|(_, kernel)| filter.kernel(&kernel.name))
            {
                for operator in Operator::ALL.into_iter().filter(|operator| filter.operator(*operator)) {
                    let applies = |i: &usize| {
                        let instruction = &kernel.instructions[*i];
                        let is_chosen =
                            filter.lines.is_empty() || filter.lines.contains(&(instruction.line + 1));
                        is_chosen && !operator.variants(kernel, instruction).is_empty()
                    };
                    let at: Vec<usize> = (0..kernel.instructions.len()).filter(applies).collect();
                    if !at.is_empty() {
                        strata.push((m, k, operator, at));
                    }
                }
            }
        }
        Draw { modules, strata, random: Random::new(seed) }
    }

    /// The module and the kernel of a mutant.
    pub fn kernel(&self, mutant: &Mutant) -> (&'m Module, &'m Kernel) {
        let module = &self.modules[mutant.module];
        (module, &module.kernels[mutant.kernel])
    }
}

impl Iterator for Draw<'_> {
    type Item = Mutant;

    fn next(&mut self) -> Option<Mutant> {
        if self.strata.is_empty() {
            return None;
        }
        // `stage`, `advance` and `finish` have few instructions: seven draws in eight pass them over.
        let (m, k, operator, at) = loop {
            let stratum = &self.strata[self.random.below(self.strata.len())];
            let is_main = self.modules[stratum.0].kernels[stratum.1].is_main();
            let only_helpers = self.strata.iter().all(|s| !self.modules[s.0].kernels[s.1].is_main());
            if is_main || only_helpers || self.random.below(8) == 0 {
                break stratum;
            }
        };
        let kernel = &self.modules[*m].kernels[*k];
        let instruction = &kernel.instructions[at[self.random.below(at.len())]];
        let mut variants = operator.variants(kernel, instruction);
        let after = variants.swap_remove(self.random.below(variants.len()));
        let (before, line) = (instruction.text(), instruction.line);
        Some(Mutant { module: *m, kernel: *k, operator: *operator, line, before, after })
    }
}
