//! Rows made ahead by the kernels' own source: `make` and `add` against the CPU engine, step by step.

use super::Onto;
use super::module::{Module, Mutation};
use corrnoise::backend::{Add, Backend, Step};
use corrnoise::chacha::ChaCha;
use corrnoise::form::Kernel;
use corrnoise::grid::DitherBlock;
use corrnoise::{Cpu, CpuOptions, Element, Gradients, Incarnations, Isa, Plan, RunKey, Shard};
use corrnoise_testkit::gradients::gradient;
use corrnoise_testkit::launch::{Args, key_words};
use corrnoise_testkit::turn::{Recipe, record, table};
use std::sync::Arc;

/// The modules that make the rows of a form, and add them.
pub(crate) struct Pair {
    make: Module,
    add: Arc<Module>,
    /// The most rows of a turn, by which a ring's table is laid out.
    pub(crate) max_rows: usize,
}

impl Pair {
    pub(crate) fn new(compiler: &str, name: &str, add: &Arc<Module>, mutation: Option<Mutation<'_>>) -> Pair {
        let number = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let (source, define, max_rows) = match name {
            "make_regenerate" => ("make_regenerate.cu", "NOTHING=0".into(), 8),
            ring if ring.starts_with("make_ring") => {
                ("make_ring.cu", format!("MAX_ROWS={number}"), number.parse().unwrap())
            }
            _ => ("make_blt.cu", format!("BUFFERS={number}"), 16),
        };
        let make = Module::build(compiler, name, source, &define, mutation);
        Pair { make, add: add.clone(), max_rows }
    }
}

/// A run of `make` and `add`, with the memory that they share.
struct Run<'a> {
    pair: &'a Pair,
    plan: &'a Plan,
    shard: &'a Shard,
    recipes: Vec<Recipe>,
    keys: Vec<u32>,
    state: Vec<f32>,
    /// The rows, between as many rows of guards on either side, which stay NaN.
    rows: Vec<f32>,
    due: Vec<u32>,
    slots: usize,
    tiles: u64,
    rows_ahead: usize,
    base: u64,
}

impl<'a> Run<'a> {
    /// A run from step `base` on, whose memory holds NaN.
    fn new(
        pair: &'a Pair,
        plan: &'a Plan,
        shard: &'a Shard,
        keys: &[RunKey],
        incarnations: &Incarnations,
        rows_ahead: usize,
        base: u64,
    ) -> Run<'a> {
        let segment = shard.segments()[0].clone();
        let tiles = (segment.end - 1) / 512 - segment.start / 512 + 1;
        let form = plan.form();
        let is_ring = matches!(form.kernel(), Kernel::Ring(_));
        let slots = rows_ahead + if is_ring { form.num_slots() } else { 0 };
        let memory = |slots: usize| vec![f32::NAN; slots * tiles as usize * 512];
        Run {
            pair,
            plan,
            shard,
            recipes: Recipe::all(plan, incarnations),
            keys: key_words(keys),
            state: memory(if is_ring { 0 } else { form.num_slots() }),
            rows: memory(3 * slots),
            due: vec![0; tiles as usize],
            slots,
            tiles,
            rows_ahead,
            base,
        }
    }

    /// Takes the state of a CPU engine before the step `base`.
    fn restore(&mut self, cpu: &Cpu) {
        let (first, len) = (self.shard.segments()[0].start, self.shard.num_coords() as usize);
        let row = self.tiles as usize * 512;
        for slot in 0..self.plan.form().num_slots() {
            let mut bytes = vec![0; 4 * len];
            cpu.read_state(slot, 0, &mut bytes).unwrap();
            let (memory, place) = match self.state.is_empty() {
                true => (&mut self.rows, 2 * self.slots - 1 - slot),
                false => (&mut self.state, slot),
            };
            let values = &mut memory[place * row + first as usize % 512..][..len];
            for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
    }

    fn first_row(&mut self) -> *mut f32 {
        let guards = self.rows.len() / 3;
        self.rows[guards..].as_mut_ptr()
    }

    fn guards_are_whole(&self) -> bool {
        let guards = self.rows.len() / 3;
        self.rows[..guards].iter().chain(&self.rows[2 * guards..]).all(|value| value.is_nan())
    }

    /// The launch parameters that `make` and `add` share.
    fn args(&self) -> Args {
        Args {
            keys: self.keys.as_ptr() as u64,
            rows_ahead: self.rows_ahead as u32,
            base: self.base,
            ..Args::of(self.plan, self.tiles, self.slots)
        }
    }

    /// The shard's one segment, with the address of its gradient.
    fn segment(&self, gradient: u64) -> [u64; 4] {
        let segment = self.shard.segments()[0].clone();
        [gradient, segment.start, segment.end - segment.start, 0]
    }

    /// Launches `make` for a step: what is due then, or with `too_many` more blocks than that.
    fn make(&mut self, number: u64, too_many: bool) {
        let recipe = &self.recipes[number as usize];
        let step = record(&self.recipes, number, self.base, self.rows_ahead, self.slots);
        let turn = &self.recipes[number as usize..][..step.count as usize];
        // Aligned as device memory is.
        let mut list: Vec<u128> = Vec::new();
        for quad in table(self.plan.form(), self.pair.max_rows, turn).chunks(4) {
            list.push((0..4).map(|i| u128::from(*quad.get(i).unwrap_or(&0)) << (32 * i)).sum());
        }
        let segment = self.segment(0);
        let mut args =
            Args { segments: segment.as_ptr() as u64, list: list.as_ptr() as u64, step, ..self.args() };
        args.key.copy_from_slice(&self.keys[8 * usize::from(recipe.incarnation)..][..8]);
        args.due = self.due.as_mut_ptr() as u64;
        args.rows = self.first_row() as u64;
        args.state = if self.state.is_empty() { args.rows } else { self.state.as_mut_ptr() as u64 };
        let mut per_block = 4;
        match self.plan.form().kernel() {
            Kernel::Blt(blt) => args.set_blt(blt.scale(), blt.decay()),
            Kernel::Ring(_) => per_block = 1,
            Kernel::Regenerate(_) => {}
        }
        let first = number == self.base;
        let due = if first { self.tiles } else { self.tiles.div_ceil(self.rows_ahead as u64) };
        let blocks = due.div_ceil(per_block) + u64::from(too_many);
        // SAFETY: rows and state have whole tiles, the table what the turn needs.
        unsafe { self.pair.make.run_blocks(&args, blocks) };
    }

    /// Adds the row of a step to a gradient.
    fn add<E: Element>(&mut self, step: &Step<'_>, gradient: &mut [E], dither: [u32; 4]) {
        let segment = self.segment(gradient.as_mut_ptr() as u64);
        assert_eq!(gradient.len() as u64, segment[2]);
        let state = self.first_row() as u64;
        let mut args = Args { segments: segment.as_ptr() as u64, state, ..self.args() };
        args.step.dither = dither;
        args.step.head = ((step.number - self.base) % self.slots as u64) as u32;
        args.set_add(step.add);
        // SAFETY: the gradient has the segment's values, the rows whole tiles.
        unsafe { self.pair.add.run_tiles(&args, E::DTYPE.tag()) };
    }
}

/// A plan on a shard, from a step on, with so many rows ahead.
pub(crate) struct Case<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) shard: &'a Shard,
    pub(crate) rows_ahead: usize,
    pub(crate) begin: u64,
    pub(crate) isa: Isa,
}

/// Runs a case on both, every third step with `make` launched twice. Gives the first difference.
pub(crate) fn compare_ahead<E: Element>(pair: &Pair, case: &Case<'_>, onto: Onto) -> Option<String> {
    let Case { plan, shard, rows_ahead, begin, isa } = *case;
    let len = shard.num_coords() as usize;
    let keys = [37, 91].map(|factor| RunKey::from_bytes(std::array::from_fn(|i| (i * factor + 11) as u8)));
    let mut incarnations = Incarnations::first();
    if begin > 0 {
        incarnations.begin(begin, [7; 16]).unwrap();
    }
    let options = CpuOptions { isa, compact: isa == Isa::Scalar, ..CpuOptions::default() };
    let mut cpu = Cpu::new(plan, &keys, shard, options).unwrap();
    let mut run = Run::new(pair, plan, shard, &keys, &incarnations, rows_ahead, begin);
    let ciphers = keys.map(|key| ChaCha::new(key.bytes(), plan.rounds()));
    let mut terms = Vec::new();
    for number in 0..plan.num_steps() {
        let lowered = Step::lower(plan, number, &incarnations, &mut terms).unwrap();
        let add = if onto == Onto::Plain { Add::Plain(plan.scale(number)) } else { lowered.add };
        let step = Step { add, ..lowered };
        let mut expected: Vec<E> = match onto {
            Onto::Plain => vec![E::from_f32(0.0); len],
            _ => gradient(len as u64, E::from_f32),
        };
        let mut got = expected.clone();
        if number == begin && begin > 0 {
            run.restore(&cpu);
        }
        cpu.step(&step, Gradients::new(&mut [&mut expected[..]])).unwrap();
        if number < begin {
            continue;
        }
        run.make(number, number % 5 == 2);
        if number % 3 == 1 {
            run.make(number, true);
        }
        let dither =
            DitherBlock::new(&ciphers[usize::from(step.dither.incarnation())], step.dither).key(number);
        run.add(&step, &mut got, dither.0);
        if let Some(at) = (0..len).find(|&i| expected[i].to_bits() != got[i].to_bits()) {
            let (expected, got) = (expected[at], got[at]);
            return Some(format!("step {number}, coordinate {at}: {expected:?}, {got:?}"));
        }
    }
    (!run.guards_are_whole()).then(|| "written beside the rows".into())
}

/// The module that adds rows.
pub(crate) fn add_module(compiler: &str, mutation: Option<Mutation<'_>>) -> Arc<Module> {
    Arc::new(Module::build(compiler, "add", "add.cu", "NOTHING=0", mutation))
}
