//! Rows made ahead by the kernels' own source: `make` and `add` against the CPU engine, step by step.

use super::*;
use corrnoise::Isa;
use std::collections::BTreeSet;

/// The struct `Step` of `kernels/launch.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Record {
    number: u64,
    row: u64,
    dither: [u32; 4],
    columns: [u32; 8],
    scale: f32,
    head: u32,
    list: u32,
    count: u32,
}

/// The struct `Args` of `kernels/launch.cuh`, with addresses as numbers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Args {
    segments: u64,
    state: u64,
    list: u64,
    keys: u64,
    schedule: u64,
    counter: u64,
    num_scheduled: u64,
    overflow: u64,
    num_tiles: u64,
    step: Record,
    num_segments: u32,
    four_rounds: u32,
    num_slots: u32,
    one: u32,
    grid: [f32; 2],
    key: [u32; 8],
    scale: [f32; 8],
    decay: [f32; 8],
    due: u64,
    base: u64,
    rows: u64,
    rows_ahead: u32,
    padding: u32,
}
const _: () = assert!(size_of::<Args>() == 304);

/// The modules that make the rows of a form, and add them.
struct Pair {
    make: Module,
    add: Arc<Module>,
    /// The most rows of a turn, by which a ring's table is laid out.
    max_rows: usize,
}

impl Pair {
    fn new(compiler: &str, name: &str, add: &Arc<Module>, mutation: Option<Mutation<'_>>) -> Pair {
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

/// What the row of one step is made of.
#[derive(Default)]
struct Recipe {
    row: u64,
    incarnation: u16,
    fresh: bool,
    coefs: Vec<f32>,
    terms: Vec<(u64, f32)>,
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
        let mut terms = Vec::new();
        let recipes = (0..plan.num_steps()).map(|number| {
            let step = Step::lower(plan, number, incarnations, &mut terms).unwrap();
            match step.kernel {
                StepKernel::Blt { row, fresh, .. } => {
                    Recipe { row: row.stream(), incarnation: row.incarnation(), fresh, ..Recipe::default() }
                }
                StepKernel::Ring { row, coefs } => Recipe {
                    row: row.stream(),
                    incarnation: row.incarnation(),
                    coefs: coefs.to_vec(),
                    ..Recipe::default()
                },
                StepKernel::Regenerate { terms } => Recipe {
                    terms: terms.iter().map(|(row, weight)| (row.stream(), *weight)).collect(),
                    ..Recipe::default()
                },
            }
        });
        let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        Run {
            pair,
            plan,
            shard,
            recipes: recipes.collect(),
            keys: keys.iter().flat_map(|key| key.bytes().as_chunks::<4>().0.iter().map(word)).collect(),
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

    /// The table of the turn that begins at a step, padded with NaN where nothing may be read.
    fn table(&self, number: u64) -> Vec<u32> {
        let turn = &self.recipes[number as usize..];
        let turn = &turn[..turn.len().min(self.rows_ahead)];
        let mut words = Vec::new();
        match self.plan.form().kernel() {
            Kernel::Blt(_) => {}
            Kernel::Ring(ring) => {
                let (h, pitch) = (ring.num_slots(), self.pair.max_rows);
                words.resize(pitch * (1 + h + pitch), f32::NAN.to_bits());
                for (k, recipe) in turn.iter().enumerate() {
                    words[k] = recipe.coefs.len() as u32;
                    for (coef, age) in recipe.coefs.iter().zip(1..) {
                        let row = if age > k { age - k - 1 } else { h + k - age };
                        words[pitch * (1 + row) + k] = (-coef).to_bits();
                    }
                }
            }
            Kernel::Regenerate(_) => {
                let rows: BTreeSet<u64> =
                    turn.iter().flat_map(|r| r.terms.iter().map(|term| term.0)).collect();
                words.extend([rows.len() as u32, 0, 0, 0]);
                // The index counts: an older incarnation's name may be the smaller one.
                let mut rows: Vec<u64> = rows.into_iter().collect();
                rows.sort_by_key(|row| std::cmp::Reverse(row & 0xff_ffff_ffff));
                for row in rows {
                    words.extend([row as u32, (row >> 32) as u32, 0, 0]);
                    for k in 0..8 {
                        let term = turn.get(k).and_then(|r| r.terms.iter().find(|term| term.0 == row));
                        words.push(term.map_or(0.0, |term| term.1).to_bits());
                    }
                }
            }
        }
        words
    }

    /// Launches `make` for a step: what is due then, or with `too_many` more blocks than that.
    fn make(&mut self, number: u64, too_many: bool) {
        let (time, k) = (number - self.base, self.rows_ahead as u64);
        let segment = self.shard.segments()[0].clone();
        let segment = [0, segment.start, segment.end - segment.start, 0];
        // Aligned as device memory is.
        let mut list: Vec<u128> = Vec::new();
        for quad in self.table(number).chunks(4) {
            list.push((0..4).map(|i| u128::from(*quad.get(i).unwrap_or(&0)) << (32 * i)).sum());
        }
        let rows = self.first_row() as u64;
        let recipe = &self.recipes[number as usize];
        let mut args = Args {
            segments: segment.as_ptr() as u64,
            num_segments: 1,
            list: list.as_ptr() as u64,
            keys: self.keys.as_ptr() as u64,
            num_tiles: self.tiles,
            four_rounds: u32::from(self.plan.rounds()) / 4,
            num_slots: self.slots as u32,
            due: self.due.as_mut_ptr() as u64,
            base: self.base,
            rows,
            rows_ahead: self.rows_ahead as u32,
            ..Args::default()
        };
        args.state = if self.state.is_empty() { args.rows } else { self.state.as_mut_ptr() as u64 };
        args.key.copy_from_slice(&self.keys[8 * usize::from(recipe.incarnation)..][..8]);
        args.step = Record {
            number,
            row: recipe.row,
            head: (time % self.slots as u64) as u32,
            count: (self.plan.num_steps() - number).min(k) as u32,
            ..Record::default()
        };
        let mut per_block = 4;
        match self.plan.form().kernel() {
            Kernel::Blt(blt) => {
                args.scale[..blt.scale().len()].copy_from_slice(blt.scale());
                args.decay[..blt.decay().len()].copy_from_slice(blt.decay());
                for bit in 0..2 * k {
                    let recipe = (number + bit).checked_sub(k).and_then(|at| self.recipes.get(at as usize));
                    args.step.list |= u32::from(recipe.is_some_and(|recipe| recipe.fresh)) << bit;
                }
            }
            Kernel::Ring(_) => per_block = 1,
            Kernel::Regenerate(_) => {}
        }
        let due = if time == 0 { self.tiles } else { self.tiles.div_ceil(k) };
        let blocks = due.div_ceil(per_block) + u64::from(too_many);
        type Blocks = unsafe extern "C" fn(*const Args, u64);
        // SAFETY: `run_blocks` in make.cpp has this type.
        let run = *unsafe { self.pair.make.library.get::<Blocks>(b"run_blocks") }.unwrap();
        // SAFETY: rows and state have whole tiles, the table what the turn needs.
        unsafe { run(&args, blocks) };
    }

    /// Adds the row of a step to a gradient.
    fn add(&mut self, step: &Step<'_>, gradient: *mut c_void, dither: [u32; 4], element: u32) {
        let segment = self.shard.segments()[0].clone();
        let (out_scale, unit, per_unit) = match step.add {
            Add::OnGrid(grid) => (grid.scale, grid.unit, grid.per_unit),
            Add::Plain(scale) => (scale, 0.0, 0.0),
        };
        let call = Call {
            gradient,
            first: segment.start,
            length: segment.end - segment.start,
            state: self.first_row().cast(),
            list: std::ptr::null(),
            keys: self.keys.as_ptr(),
            scale: std::ptr::null(),
            decay: std::ptr::null(),
            row: 0,
            incarnation: 0,
            columns: [0; 8],
            dither,
            out_scale,
            unit,
            per_unit,
            head: ((step.number - self.base) % self.slots as u64) as u32,
            count: 0,
            four_rounds: 0,
            num_slots: 0,
            num_buffers: 0,
            first_tile: 0,
            end_tile: 0,
        };
        self.pair.add.run(call, self.tiles, element);
    }
}

/// A plan on a shard, from a step on, with so many rows ahead.
struct Case<'a> {
    plan: &'a Plan,
    shard: &'a Shard,
    rows_ahead: usize,
    begin: u64,
    isa: Isa,
}

/// Runs a case on both, every third step with `make` launched twice. Gives the first difference.
fn compare_ahead<E: Element>(pair: &Pair, case: &Case<'_>, onto: Onto) -> Option<String> {
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
        run.add(&step, got.as_mut_ptr().cast(), dither.0, E::DTYPE.tag());
        if let Some(at) = (0..len).find(|&i| expected[i].to_bits() != got[i].to_bits()) {
            let (expected, got) = (expected[at], got[at]);
            return Some(format!("step {number}, coordinate {at}: {expected:?}, {got:?}"));
        }
    }
    (!run.guards_are_whole()).then(|| "written beside the rows".into())
}

fn add_module(compiler: &str, mutation: Option<Mutation<'_>>) -> Arc<Module> {
    Arc::new(Module::build(compiler, "add", "add.cu", "NOTHING=0", mutation))
}

fn within(range: std::ops::Range<u64>) -> Shard {
    Shard::whole(1 << 40).unwrap().within(range).unwrap()
}

fn blt(buffers: usize) -> Form {
    every_form(1).swap_remove(buffers).1
}

fn ring(bands: usize) -> Form {
    Form::banded_toeplitz(&square_root_coefs(bands)).unwrap()
}

fn regenerate(terms: usize) -> Form {
    Form::regenerate(&inverse_square_root_coefs(terms)).unwrap()
}

/// Compares 256,003 coordinates × 40 steps of every kernel, a turn of as many rows as it makes: more than ten million values.
#[test]
fn ten_million_values_of_rows_ahead() {
    let Some(compiler) = compiler() else { return };
    let shard = within(5..256_008);
    let add = add_module(&compiler, None);
    let mut kernels: Vec<_> = (1..=8).map(|d| (format!("make_blt{d}"), blt(d), 8)).collect();
    kernels.push(("make_ring8".into(), ring(16), 8));
    kernels.push(("make_ring16".into(), ring(20), 16));
    kernels.push(("make_regenerate".into(), regenerate(4), 8));
    for (name, form, rows_ahead) in kernels {
        let pair = Pair::new(&compiler, &name, &add, None);
        let plan = Plan::new(40, form, 0.7313).unwrap();
        let case = Case { plan: &plan, shard: &shard, rows_ahead, begin: 0, isa: Isa::Auto };
        assert_eq!(compare_ahead::<f32>(&pair, &case, Onto::Plain), None, "{name}");
    }
    let pair = Pair::new(&compiler, "make_blt1", &add, None);
    let plan = Plan::new(40, blt(1), 0.7313).unwrap();
    let case = Case { plan: &plan, shard: &shard, rows_ahead: 8, begin: 0, isa: Isa::Auto };
    for (element, difference) in [
        ("f32", compare_ahead::<f32>(&pair, &case, Onto::Values)),
        ("bf16", compare_ahead::<bf16>(&pair, &case, Onto::Values)),
        ("f16", compare_ahead::<f16>(&pair, &case, Onto::Values)),
    ] {
        assert_eq!(difference, None, "{element}");
    }
}

/// Every kind of form that makes rows ahead, with the kernels that make them and a number of steps that shows all they do.
fn forms() -> Vec<(&'static [&'static str], Form, u64)> {
    const RINGS: &[&str] = &["make_ring8", "make_ring16"];
    let steps = 43_usize;
    let varying: Vec<Vec<f64>> = (0..steps)
        .map(|t| (0..=t.min(3 + t % 6)).map(|a| 1.5 / (1.0 + a as f64 + 0.1 * t as f64)).collect())
        .collect();
    let restarted = |form: Form, every| form.with_restarts(every).unwrap();
    let mut forms: Vec<(&[&str], Form, u64)> = vec![
        (&["make_blt1"], restarted(blt(1), 1), 20),
        (&["make_blt2"], restarted(blt(2), 5), 39),
        (&["make_blt3"], restarted(blt(3), 13), 39),
        (&["make_blt8"], blt(8), 34),
        (RINGS, Form::banded(&varying).unwrap(), steps as u64),
        (RINGS, restarted(ring(5), 3), 37),
        (RINGS, restarted(ring(16), 13), 45),
        (RINGS, restarted(ring(16), 29), 70),
        (&["make_regenerate"], restarted(regenerate(9), 14), 40),
    ];
    for (bands, steps) in
        [(1, 20), (2, 20), (8, 40), (9, 40), (16, 53), (17, 53), (64, 150), (65, 150), (140, 300)]
    {
        forms.push((RINGS, ring(bands), steps));
    }
    forms.extend([1, 2, 12].map(|terms| (&["make_regenerate"][..], regenerate(terms), 35)));
    forms
}

/// Compares every kind of form with several numbers of rows ahead, on more and on fewer tiles than phases, from the start and from a
/// state in the middle, with coordinates below and beyond 2^36.
#[test]
fn every_turn_of_rows_ahead() {
    let Some(compiler) = compiler() else { return };
    let add = add_module(&compiler, None);
    let shards = [within(700..703), within((1 << 36) - 700..(1 << 36) + 613), within(3..512 * 11 + 7)];
    let names: BTreeSet<&str> = forms().iter().flat_map(|(names, ..)| names.iter().copied()).collect();
    let mut cases = 0;
    for name in names {
        let pair = Pair::new(&compiler, name, &add, None);
        for (_, form, steps) in forms().into_iter().filter(|(names, ..)| names.contains(&name)) {
            for (i, rows_ahead) in [1, 3, 8, 16].into_iter().filter(|k| *k <= pair.max_rows).enumerate() {
                let rounds = [Rounds::R12, Rounds::R8, Rounds::R20][i % 3];
                let plan = Plan::new(steps, form.clone(), 0.7313).unwrap().with_rounds(rounds).unwrap();
                for shard in &shards {
                    for begin in [0, 7] {
                        let case = Case { plan: &plan, shard, rows_ahead, begin, isa: Isa::Scalar };
                        let difference = compare_ahead::<f32>(&pair, &case, Onto::Plain);
                        assert_eq!(
                            difference, None,
                            "{name}, {form:?}, {rows_ahead} rows, {shard:?}, from {begin}"
                        );
                        cases += 1;
                    }
                }
            }
        }
    }
    println!("{cases} cases");
}

/// Makes mistakes in the sources on purpose: each must show.
#[test]
fn mutations_of_rows_ahead_are_noticed() {
    let Some(compiler) = compiler() else { return };
    const BLT: (&str, &str) = ("make_blt3", "make_blt.cu");
    const RING: (&str, &str) = ("make_ring8", "make_ring.cu");
    const SUM: (&str, &str) = ("make_regenerate", "make_regenerate.cu");
    const TURN: (&str, &str) = ("make_ring8", "turn.cuh");
    let mutations: [(&str, (&str, &str), &str, &str); 33] = [
        (
            "a count off by one",
            RING,
            "? words[threadIdx.x] : 0",
            "? words[threadIdx.x] - (words[threadIdx.x] > 0) : 0",
        ),
        (
            "an age too few for a row",
            RING,
            "if (age + k <= shared.counts[k])",
            "if (age + k < shared.counts[k])",
        ),
        ("a row of the turn too few", RING, "k - j <= shared.counts[k]", "k - j < shared.counts[k]"),
        ("predicates in no row of the turn", RING, "if (steady || k - j <= shared.counts[k])", "if (true)"),
        ("a steady turn that is none", RING, "shared.counts[k] == h", "shared.counts[k] + 1 >= h"),
        ("no predicates", RING, "max(low, common)", "max(low, oldest)"),
        ("a common age too many", RING, "common = min(common, count)", "common = min(common, count + 1)"),
        ("a wrong row name", RING, "turn.row + k", "turn.row + 2 * k"),
        ("a row that no warp samples", RING, "k += WARPS_PER_BLOCK", "k += WARPS_PER_BLOCK + 1"),
        ("a wrong slot step", RING, "at += stride;", "at += stride - 4;"),
        ("a missing wrap", RING, "if (age == head) at -= all;", ""),
        (
            "a wrap one row late",
            RING,
            "turn.head + j + 1 == args.num_slots",
            "turn.head + j == args.num_slots",
        ),
        (
            "a missing store",
            RING,
            "if (steady || j < turn.rows) store_quad(row, y[j]);",
            "if (j) store_quad(row, y[j]);",
        ),
        ("a store past the turn", RING, "if (steady || j < turn.rows) store", "store"),
        (
            "a missing barrier",
            RING,
            "share(args, turn, h, shared);\n    __syncthreads();",
            "share(args, turn, h, shared);",
        ),
        (
            "a missing barrier before the next ages",
            RING,
            "__syncthreads();\n        share_ages",
            "share_ages",
        ),
        (
            "a missing barrier after the next ages",
            RING,
            "low, high, shared);\n        __syncthreads();",
            "low, high, shared);",
        ),
        ("the wrong ages", RING, "(const Quad32 *)(table + low)", "(const Quad32 *)(table + low + 1)"),
        ("the triangle of another age", RING, "shared.old[h - low - 1 - i]", "shared.old[h - low - 1]"),
        ("a turn without a mark", TURN, "turn.due = (u32)time + turn.rows", "turn.due = (u32)time"),
        ("a turn that runs again", ("make_blt3", "turn.cuh"), "|| args.due[turn.tile] != (u32)time", ""),
        (
            "a turn too long at time 0",
            TURN,
            "turn.rows = K - (u32)(index * K / args.num_tiles);",
            "turn.rows = K;",
        ),
        ("phases that round down", TURN, "args.num_tiles + K - 1, K)", "args.num_tiles, K)"),
        ("a missing warp barrier", ("make_blt3", "turn.cuh"), "__syncwarp();", ""),
        ("a fresh row that remembers", BLT, "if (!fresh) return;", "return;"),
        (
            "a mask off by one",
            BLT,
            "turn.list >> (args.rows_ahead - turn.before)",
            "turn.list >> (args.rows_ahead - turn.before + 1)",
        ),
        (
            "a row that is not folded",
            BLT,
            "u32 left = turn.before;",
            "u32 left = turn.before ? turn.before - 1 : 0;",
        ),
        ("buffers that are not stored", BLT, "if (turn.before) {", "if (false) {"),
        (
            "a fold without its fma",
            BLT,
            "__fmaf_rn(args.decay[i / 16], m[i / 16][i % 16], z[i % 16])",
            "__fadd_rn(__fmul_rn(args.decay[i / 16], m[i / 16][i % 16]), z[i % 16])",
        ),
        ("a term too few", SUM, "u32 left = *table;", "u32 left = *table - 1;"),
        ("a slot that does not wrap", SUM, "if (++slot == args.rows_ahead) slot = 0;", "++slot;"),
        ("another sum's weight", SUM, "weight.v[i / 16]", "weight.v[i / 32]"),
        (
            "the row of another step",
            ("make_blt3", "add.cu"),
            "work.head *",
            "(work.head ? work.head - 1 : 0) *",
        ),
    ];
    let add = add_module(&compiler, None);
    let shard = within(5..512 * 19 + 7);
    let difference = |name: &str, mutation: Option<Mutation<'_>>| {
        let pair = match mutation {
            Some(("add.cu", ..)) => Pair::new(&compiler, name, &add_module(&compiler, mutation), None),
            _ => Pair::new(&compiler, name, &add, mutation),
        };
        forms().into_iter().filter(|(names, ..)| names.contains(&name)).find_map(|(_, form, steps)| {
            let plan = Plan::new(steps, form, 0.7313).unwrap();
            let case = |rows_ahead| Case { plan: &plan, shard: &shard, rows_ahead, begin: 0, isa: Isa::Auto };
            [8, 3].into_iter().find_map(|rows| compare_ahead::<f32>(&pair, &case(rows), Onto::Plain))
        })
    };
    for (mistake, (name, file), from, to) in mutations {
        let difference = difference(name, Some((file, from, to)));
        println!("{mistake}: {difference:?}");
        assert!(difference.is_some(), "{mistake} was not noticed");
    }
}
