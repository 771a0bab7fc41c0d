//! The digits of what is released do not tell the gradient: lattice statistics cannot tell one gradient value from another.
//!
//! An ordinary sum `g + x` of floats lies on a lattice that depends on `g`, and a few outputs tell `g = 0` from `g = 1` by their last digits. Here
//! every output is counted by its last eight digits in units of the grid Γ, in seven windows: all outputs, those at distances below 1/16,
//! below 1, in [1, 2), in [2, 4) and from 4 on of the gradient, and those with |y| < 1/16. Two kinds of statistics follow for each window and each
//! j = 1 … 8: the fraction of multiples of 2^j·Γ (for j = 1 that is parity), and chi-square of the lowest j digits.
//!
//! Each is taken against theory (a normal distribution's cells of width Γ) and between two samples, g = 0 and another g. In a
//! window the density is not constant, so that classes of digits have different expectations, a property of the normal
//! distribution and not of its digits: the two-sample statistics are differences of what was counted less what theory expects.
//!
//! A finding is a probability below 10⁻³ divided by the number of statistics in the test (Bonferroni): a test that looks at several hundred
//! numbers is wrong once in a thousand keys, whatever their dependence. Keys are fixed, so a run repeats exactly.
//!
//! `CORRNOISE_LATTICE_DRAWS` sets the number of draws per gradient value.

use corrnoise::backend::{Add, Backend, Step};
use corrnoise::chacha::ChaCha;
use corrnoise::grid::{DitherBlock, Grid, STEPS_PER_BLOCK};
use corrnoise::noise::TILE;
use corrnoise::{
    Cpu, CpuOptions, Family, Form, Gradients, Incarnations, Key, Mechanism, Plan, Row, RunKey, Shard,
};
use corrnoise_testkit::normal::{chi_square_upper, upper, z_score};

/// The number of values per buffer: whole tiles, and small enough to stay in cache between sampling and counting.
const LEN: usize = 1 << 16;

/// Outputs are counted by this many classes: the last eight digits.
const CLASSES: usize = 256;

/// Distances from the gradient at which a window ends.
const EDGES: [f64; 4] = [1.0 / 16.0, 1.0, 2.0, 4.0];

const WINDOWS: [&str; 7] =
    ["all", "|y-g| < 1/16", "|y-g| < 1", "|y-g| in [1, 2)", "|y-g| in [2, 4)", "|y-g| >= 4", "|y| < 1/16"];

/// The chance that a test which should find nothing finds something.
const FALSE_ALARM: f64 = 1e-3;

/// A gradient value of 2,000 σ or more, where f32 itself is coarser than the finest grid.
const LARGE: f64 = 20_000.0;

fn draws() -> u64 {
    std::env::var("CORRNOISE_LATTICE_DRAWS")
        .map_or(20_000_000, |count| count.parse().expect("a number of draws"))
}

/// How outputs are looked at.
#[derive(Clone, Copy)]
struct View {
    /// What digits are counted in, a power of two.
    unit: f64,
    /// The gradient, rounded to the unit: distances are measured from here.
    centre: f64,
    /// Added to every output first, and the sum rounded to f32.
    shift: f64,
}

impl View {
    fn new(unit: f64, g: f32) -> View {
        View { unit, centre: (f64::from(g) / unit).round_ties_even() * unit, shift: 0.0 }
    }

    /// The band of distances, the class of digits, and whether the output itself is near 0.
    fn place(&self, y: f32) -> (usize, usize, bool) {
        // The shift is exact in f64: f32 values of less than 16 digits after the point.
        let y = f64::from((f64::from(y) + self.shift) as f32);
        let distance = (y - self.centre).abs();
        let band = EDGES.iter().map(|edge| usize::from(distance >= *edge)).sum();
        // Next to 1.5·2⁵², an f64 is an integer, and its last bits are those of the nearest integer in two's complement.
        let class = (y / self.unit + 6_755_399_441_055_744.0).to_bits() as usize % CLASSES;
        (band, class, y.abs() < 1.0 / 16.0)
    }
}

/// Outputs, or their probabilities, by band of distances and class of digits; the last row has those near 0.
#[derive(Clone)]
struct Table<T>([[T; CLASSES]; EDGES.len() + 2]);

impl<T: Copy + Default + std::ops::AddAssign> Table<T> {
    fn new() -> Table<T> {
        Table([[T::default(); CLASSES]; EDGES.len() + 2])
    }

    fn add(&mut self, view: &View, y: f32, weight: T) {
        let (band, class, near_zero) = view.place(y);
        self.0[band][class] += weight;
        if near_zero {
            self.0[EDGES.len() + 1][class] += weight;
        }
    }

    fn merge(&mut self, other: &Table<T>) {
        for (row, other) in self.0.iter_mut().zip(&other.0) {
            row.iter_mut().zip(other).for_each(|(a, b)| *a += *b);
        }
    }

    /// The classes modulo 2^`digits` in a window of [`WINDOWS`].
    fn window(&self, window: usize, digits: u32) -> Vec<T> {
        let rows = match window {
            0 => 0..5,
            1 => 0..1,
            2 => 0..2,
            other => other - 1..other,
        };
        let mut sums = vec![T::default(); 1 << digits];
        for row in &self.0[rows] {
            row.iter().enumerate().for_each(|(class, value)| sums[class % (1 << digits)] += *value);
        }
        sums
    }
}

/// One sample: what was counted, and what theory expects.
struct Sample {
    counts: Table<u64>,
    expected: Table<f64>,
}

/// A statistic and its probability, two-sided.
struct Statistic {
    name: String,
    p: f64,
}

impl Statistic {
    /// The probability as a distance of a normal variable from 0, in standard errors.
    fn z(&self) -> f64 {
        z_score(self.p / 2.0)
    }
}

/// All statistics of a sample against theory, or of two samples against each other.
fn statistics(name: &str, sample: &Sample, other: Option<&Sample>) -> Vec<Statistic> {
    let mut found = Vec::new();
    for (window, window_name) in WINDOWS.into_iter().enumerate() {
        for digits in 1..=8 {
            let fractions = |sample: &Sample| {
                let counts = sample.counts.window(window, digits);
                let expected = sample.expected.window(window, digits);
                let (count, mass) = (counts.iter().sum::<u64>() as f64, expected.iter().sum::<f64>());
                let excess = counts.iter().zip(&expected).map(|(n, p)| *n as f64 / count - p / mass);
                (
                    counts.clone(),
                    count,
                    expected.iter().map(|p| p / mass).collect::<Vec<_>>(),
                    excess.collect::<Vec<_>>(),
                )
            };
            let (counts, count, expected, mut excess) = fractions(sample);
            let (mut per_draw, mut least, mut probability) = (1.0 / count, count, expected);
            if let Some(other) = other {
                let (others, other_count, _, other_excess) = fractions(other);
                excess.iter_mut().zip(other_excess).for_each(|(a, b)| *a -= b);
                (per_draw, least) = (per_draw + 1.0 / other_count, least.min(other_count));
                probability =
                    counts.iter().zip(others).map(|(a, b)| (a + b) as f64 / (count + other_count)).collect();
            }
            // Too few for a normal approximation, or no such outputs at all.
            const ENOUGH: f64 = 20.0;
            if least.is_nan() || least < ENOUGH {
                continue;
            }
            let variance = probability[0] * (1.0 - probability[0]);
            if least * variance >= ENOUGH {
                let z = excess[0] / (variance * per_draw).sqrt();
                let name = format!("{name}, {window_name}: multiples of 2^{digits}, z = {z:+.2}");
                found.push(Statistic { name, p: 2.0 * upper(z.abs()) });
            }
            // Chi-square; rare classes count as one.
            let (mut chi_square, mut cells, mut rest) = (0.0, 0, (0.0, 0.0));
            for (excess, p) in excess.iter().zip(&probability) {
                if least * p >= ENOUGH {
                    (chi_square, cells) = (chi_square + excess * excess / (p * per_draw), cells + 1);
                } else {
                    rest = (rest.0 + excess, rest.1 + p);
                }
            }
            if least * rest.1 >= ENOUGH {
                (chi_square, cells) = (chi_square + rest.0 * rest.0 / (rest.1 * per_draw), cells + 1);
            }
            if digits > 1 && cells > 1 {
                let name = format!(
                    "{name}, {window_name}: chi-square of {digits} digits, {chi_square:.1} of {}",
                    cells - 1
                );
                found.push(Statistic { name, p: chi_square_upper(chi_square, cells - 1) });
            }
        }
    }
    found
}

/// The statistic with the smallest probability.
fn worst(statistics: &[Statistic]) -> &Statistic {
    statistics.iter().min_by(|a, b| a.p.total_cmp(&b.p)).expect("at least one statistic")
}

/// The probabilities of outputs on the grid `unit` for noise of these standard deviations, each as often as the others.
///
/// The probability of a cell is its width times the mean density in it, which is that of its middle times 1 + u²·(z² − 1)/24 where u is the cell's
/// width in standard deviations. The next term is of the order of u⁴·z⁴/1920, a relative 10⁻⁸ at most where anything is drawn.
fn expected(view: &View, unit: f64, g: f32, stddevs: &[f64]) -> Table<f64> {
    let mut table = Table::new();
    let g = f64::from(g);
    let largest = stddevs.iter().copied().fold(0.0, f64::max);
    let (first, last) = ((g - 12.0 * largest) / unit, (g + 12.0 * largest) / unit);
    for cell in first.floor() as i64..=last.ceil() as i64 {
        let y = cell as f64 * unit;
        let density = |stddev: &f64| {
            let (square, width) = (((y - g) / stddev).powi(2), unit / stddev);
            (-square / 2.0).exp() / stddev * (1.0 + width * width * (square - 1.0) / 24.0)
        };
        table.add(view, y as f32, stddevs.iter().map(density).sum());
    }
    table
}

fn threads() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// The number of steps in which all cores make so many draws: whole periods of eight steps, those of the BLT between two restarts.
fn num_steps(draws: u64) -> u64 {
    draws.div_ceil(threads() * LEN as u64).next_multiple_of(8)
}

/// Draws outputs on all cores and counts them in each view. `source` makes what fills a buffer with the outputs of a step, for a shard.
fn count<Fill: FnMut(u64, &mut [f32])>(
    draws: u64,
    views: &[View],
    source: impl Fn(Shard, u64) -> Fill + Sync,
) -> Vec<Table<u64>> {
    let (threads, steps) = (threads(), num_steps(draws));
    let space = Shard::whole(threads * LEN as u64).unwrap();
    let part = |i: u64| {
        let shard = space.within(i * LEN as u64..(i + 1) * LEN as u64).unwrap();
        let mut fill = source(shard, steps);
        let mut tables: Vec<Table<u64>> = views.iter().map(|_| Table::new()).collect();
        let mut values = vec![0.0_f32; LEN];
        for step in 0..steps {
            fill(step, &mut values);
            for (table, view) in tables.iter_mut().zip(views) {
                values.iter().for_each(|y| table.add(view, *y, 1));
            }
        }
        tables
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|i| scope.spawn(move || part(i))).collect();
        let mut sum = part(0);
        for other in others {
            sum.iter_mut().zip(other.join().unwrap()).for_each(|(sum, table)| sum.merge(&table));
        }
        sum
    })
}

fn key(run_id: &str) -> Key {
    Key::from_bytes(*b"lattices of one fixed key, okay?", run_id).without_ledger()
}

const ONE_THREAD: CpuOptions =
    CpuOptions { threads: 1, isa: corrnoise::Isa::Auto, compact: false, prepare_threads: 1 };

/// A plan of so many steps has the finest grid, 2⁻¹², whatever part of it is run.
const MANY_STEPS: u64 = 1 << 20;

/// Outputs of the engine for a gradient that is `g` everywhere.
fn released(plan: &Plan, run_id: &str, g: f32, draws: u64, views: &[View]) -> Vec<Table<u64>> {
    count(draws, views, |shard, _| {
        let mut mechanism = Mechanism::cpu_with(plan, key(run_id), shard, ONE_THREAD).unwrap();
        move |_, values| {
            values.fill(g);
            mechanism.add_to(values).unwrap();
        }
    })
}

/// How wide the dither is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dither {
    Missing,
    /// One unit in the last place of the noise.
    OfLastPlace,
    /// As wide as the engine's.
    OfEngine,
}

fn last_place(z: f32) -> f32 {
    f32::from_bits(z.to_bits() & 0x7f80_0000) * 2.0_f32.powi(-23)
}

/// The noise in unit scale before the grid, and the cipher that its dither words come from.
struct Noise {
    backend: Cpu,
    plan: Plan,
    cipher: ChaCha,
    first_coord: u64,
}

impl Noise {
    fn new(plan: Plan, run_key: RunKey, shard: Shard) -> Noise {
        let cipher = ChaCha::new(run_key.bytes(), plan.rounds());
        let first_coord = shard.segments()[0].start;
        let backend = Cpu::new(&plan, &[run_key], &shard, ONE_THREAD).unwrap();
        Noise { backend, plan, cipher, first_coord }
    }

    /// The noise of a form, for a shard of [`count`].
    fn of_form(form: Form, run_id: &str, shard: Shard, steps: u64) -> Noise {
        let plan = Plan::new(steps, form, 1.0).unwrap();
        let run_key = key(run_id).run_key(plan.fingerprint());
        Noise::new(plan, run_key, shard)
    }

    fn fill(&mut self, step: u64, values: &mut [f32]) {
        values.fill(0.0);
        let mut terms = Vec::new();
        let lowered = Step::lower(&self.plan, step, &Incarnations::first(), &mut terms).unwrap();
        let plain = Step { add: Add::Plain(1.0), ..lowered };
        self.backend.step(&plain, Gradients::new(&mut [values])).unwrap();
    }

    /// Adds the noise to `g` on a grid, with the step's dither words.
    fn add_on(&mut self, grid: &Grid, g: f32, dither: Dither, step: u64, values: &mut [f32]) {
        self.fill(step, values);
        let row = Row::new(Family::Dither, 0, step / STEPS_PER_BLOCK).unwrap();
        let words = DitherBlock::new(&self.cipher, row).key(step);
        for (i, tile) in values.chunks_mut(TILE).enumerate() {
            let words = words.of_tile(self.first_coord / TILE as u64 + i as u64);
            for (place, value) in tile.iter_mut().enumerate() {
                let of_word = match dither {
                    Dither::Missing => 0.0,
                    Dither::OfLastPlace => grid.scale * last_place(*value) * 2.0_f32.powi(-32),
                    Dither::OfEngine => grid.dither,
                };
                *value = Grid { dither: of_word, ..*grid }.add(g, *value, words.word(place as u32));
            }
        }
    }
}

/// The standard deviations of a BLT's noise at the ages 0 … 7, from the f32 coefficients that run: sums of squares of the inverse's coefficients.
fn blt_stddevs(scale: [f32; 2], decay: [f32; 2]) -> Vec<f64> {
    // What one unit of z at age 0 adds to the noise at each age.
    let (mut buffers, mut sum, mut result) = ([0.0_f64; 2], 0.0, Vec::new());
    for age in 0..8 {
        let z = if age == 0 { 1.0 } else { 0.0 };
        let noise = z - f64::from(scale[0]) * buffers[0] - f64::from(scale[1]) * buffers[1];
        (0..2).for_each(|i| buffers[i] = f64::from(decay[i]) * buffers[i] + noise);
        sum += noise * noise;
        result.push(f64::sqrt(sum));
    }
    result
}

/// Holds if no statistic is a finding; prints the most extreme one of each comparison.
fn assert_nothing_found(comparisons: &[Vec<Statistic>]) {
    let total: usize = comparisons.iter().map(Vec::len).sum();
    let limit = FALSE_ALARM / total as f64;
    println!("{total} statistics, limit |z| < {:.2}", z_score(limit / 2.0));
    for statistics in comparisons.iter().filter(|statistics| !statistics.is_empty()) {
        let worst = worst(statistics);
        println!("  {} statistics, largest {:.2}: {}", statistics.len(), worst.z(), worst.name);
        assert!(worst.p > limit, "{}", worst.name);
    }
}

/// Draws outputs of a plan for a gradient, and works out what theory expects of them.
fn sample(plan: &Plan, run_id: &str, g: f32, views: &[View], stddevs: &[f64]) -> Vec<Sample> {
    let unit = f64::from(plan.grid(0).unit);
    let counts = released(plan, run_id, g, draws(), views);
    let theory = views.iter().map(|view| expected(view, unit, g, stddevs));
    counts.into_iter().zip(theory).map(|(counts, expected)| Sample { counts, expected }).collect()
}

#[test]
fn gradients_cannot_be_told_apart() {
    let unit = 2.0_f64.powi(-12);
    let mut comparisons = Vec::new();
    let plan = Plan::new(MANY_STEPS, Form::independent(), 1.0).unwrap();
    assert_eq!(plan.grid_exponent(), -12);
    // Near 20,000 f32 has steps of 2⁻⁹. A large gradient is compared with outputs for 0, moved there and rounded to f32.
    let coarse = View::new(2.0_f64.powi(-9), LARGE as f32);
    let of_zero =
        sample(&plan, "g = 0", 0.0, &[View::new(unit, 0.0), View { shift: LARGE, ..coarse }], &[1.0]);
    comparisons.push(statistics("0", &of_zero[0], None));
    comparisons.push(statistics("0 + 20000", &of_zero[1], None));
    for g in [1.0, 0.3, 1e-3, 2.0_f32.powi(-24), LARGE as f32] {
        let (view, zero) =
            if f64::from(g) == LARGE { (coarse, &of_zero[1]) } else { (View::new(unit, g), &of_zero[0]) };
        let of_g = &sample(&plan, &format!("g = {g}"), g, &[view], &[1.0])[0];
        comparisons.push(statistics(&format!("{g:e}"), of_g, None));
        comparisons.push(statistics(&format!("{g:e} and 0"), of_g, Some(zero)));
    }
    let (scale, decay) = ([0.6, 0.2], [0.5, 0.97]);
    let form = Form::blt(&scale, &decay).unwrap().with_restarts(8).unwrap();
    let plan = Plan::new(MANY_STEPS, form, 1.0).unwrap();
    let stddevs = blt_stddevs(scale.map(|x| x as f32), decay.map(|x| x as f32));
    let zero = &sample(&plan, "blt, g = 0", 0.0, &[View::new(unit, 0.0)], &stddevs)[0];
    comparisons.push(statistics("BLT, 0", zero, None));
    for g in [1.0, 0.3] {
        let of_g = &sample(&plan, &format!("blt, g = {g}"), g, &[View::new(unit, g)], &stddevs)[0];
        comparisons.push(statistics(&format!("BLT, {g}"), of_g, None));
        comparisons.push(statistics(&format!("BLT, {g} and 0"), of_g, Some(zero)));
    }
    assert_nothing_found(&comparisons);
}

/// The same for a plan that is as long as the test, whose grid is coarser: eight digits then span several standard deviations, so that every
/// class of digits is a comb of the normal distribution's cells.
#[test]
fn gradients_cannot_be_told_apart_on_a_coarse_grid() {
    let plan = Plan::new(num_steps(draws()), Form::independent(), 1.0).unwrap();
    let unit = f64::from(plan.grid(0).unit);
    assert!(unit > 2.0_f64.powi(-12));
    let mut comparisons = Vec::new();
    let zero = &sample(&plan, "coarse, g = 0", 0.0, &[View::new(unit, 0.0)], &[1.0])[0];
    comparisons.push(statistics("coarse, 0", zero, None));
    // On the grid, between its points, and a small part of a cell.
    for g in [1.0, 0.3, 1e-3] {
        let of_g = &sample(&plan, &format!("coarse, g = {g}"), g, &[View::new(unit, g)], &[1.0])[0];
        comparisons.push(statistics(&format!("coarse, {g}"), of_g, None));
        comparisons.push(statistics(&format!("coarse, {g} and 0"), of_g, Some(zero)));
    }
    assert_nothing_found(&comparisons);
}

/// The same statistics on the sum of floats, at units from 2⁻²⁰ to 2⁻⁴⁰, find the leak in 10⁶ draws; two samples of g = 0 show none.
#[test]
fn the_sum_of_floats_is_told_apart() {
    let draws = 1_000_000;
    let units = [-20, -24, -28, -32, -36, -40].map(|exponent| 2.0_f64.powi(exponent));
    let sample = |run_id: &str, g: f32| -> Vec<Sample> {
        let views = units.map(|unit| View::new(unit, g));
        let counts = count(draws, &views, |shard, steps| {
            let mut noise = Noise::of_form(Form::independent(), run_id, shard, steps);
            move |step, values| {
                noise.fill(step, values);
                values.iter_mut().for_each(|y| *y += g);
            }
        });
        // The density is constant over 256 of these units: theory drops out of the difference of two samples.
        let expected = Table([[1.0; CLASSES]; EDGES.len() + 2]);
        counts.into_iter().map(|counts| Sample { counts, expected: expected.clone() }).collect()
    };
    let zero = sample("plain, 0", 0.0);
    let compare = |name: &str, other: Vec<Sample>| -> Vec<Statistic> {
        let pairs = other.iter().zip(&zero).zip(&units);
        pairs
            .flat_map(|((a, b), unit)| {
                statistics(&format!("{name} and 0, unit 2^{}", unit.log2()), a, Some(b))
            })
            .collect()
    };
    assert_nothing_found(&[compare("0", sample("plain, 0 again", 0.0))]);
    for g in [1.0, 0.3, 1e-3, 2.0_f32.powi(-24)] {
        let statistics = compare(&format!("{g:e}"), sample(&format!("plain, {g}"), g));
        let limit = FALSE_ALARM / statistics.len() as f64;
        let found = statistics.iter().filter(|statistic| statistic.p < limit).count();
        let worst = worst(&statistics);
        println!("{found} of {} found, largest {:.1}: {}", statistics.len(), worst.z(), worst.name);
        assert!(found > 0, "g = {g} is not told from 0 by the digits of a sum of floats");
    }
}

/// The number of draws on a grid of the test's own.
fn few_draws() -> u64 {
    (draws() / 5).max(2_000_000)
}

/// The statistics of a form's noise on a grid of its own: for the gradients 0 and Γ against theory, and against each other. `stddevs` are those of the
/// form's rows between two restarts.
fn on_own_grid(
    form: &Form,
    stddevs: &[f64],
    exponent: i32,
    scale: f32,
    draws: u64,
    dither: Dither,
) -> Vec<Statistic> {
    let grid = Grid::new(exponent, scale);
    let (unit, largest) = (f64::from(grid.unit), stddevs.iter().copied().fold(0.0, f64::max));
    // Below 2²² units the rounding is exact: section 6 of the specification.
    assert!(f64::from(grid.scale) * largest * 11.54 < f64::from(1 << 22));
    let sample = |g: f32| {
        let view = View::new(unit, g);
        let run_id = format!("own grid 2^{exponent}, g = {g:e}");
        let counts = count(draws, &[view], |shard, steps| {
            let mut noise = Noise::of_form(form.clone(), &run_id, shard, steps);
            move |step, values| noise.add_on(&grid, g, dither, step, values)
        });
        let scaled: Vec<f64> = stddevs.iter().map(|stddev| stddev * f64::from(scale)).collect();
        Sample { counts: counts.into_iter().next().unwrap(), expected: expected(&view, unit, g, &scaled) }
    };
    let (zero, one) = (sample(0.0), sample(grid.unit));
    let name = format!("2^{exponent}, scale {scale}, dither {dither:?}");
    let mut all = statistics(&format!("{name}: 0"), &zero, None);
    all.extend(statistics(&format!("{name}: unit"), &one, None));
    all.extend(statistics(&format!("{name}: unit and 0"), &one, Some(&zero)));
    all
}

/// Prints the most extreme statistic, and tells whether it is a finding.
fn found(statistics: &[Statistic]) -> bool {
    let worst = worst(statistics);
    println!("{} statistics, largest {:.2}: {}", statistics.len(), worst.z(), worst.name);
    worst.p < FALSE_ALARM / statistics.len() as f64
}

/// The scale at which a lattice of 2²⁴ points shows most at a grid.
fn worst_scale(exponent: i32) -> f32 {
    1.0 / (1.0 + 2.0_f32.powi(-24 - exponent))
}

/// Without the dither, the lattice of z̃ shows at a finer grid; with it, nothing does.
///
/// The noise s·z̃ has the spacing s·ulp(z̃). Where that divides Γ, as for every power of two s, each cell of the grid, half-open as it is,
/// holds equally many points, and no digit is preferred even without a dither. With s = 64/65 and Γ = 2⁻¹⁸ the values |z̃| in [1, 2) have 32.5
/// points per cell, so 32 and 33 in turns: the parity of y/Γ is biased by 1/65 there, towards even ones or odd ones as g/Γ is even or odd.
/// With s = 2^j/(2^j + 1) the same happens at Γ = 2^(j − 24), with a bias of 2^−j: n draws show it where √n is above 7·2^j.
#[test]
fn the_dither_hides_the_lattice_of_the_noise() {
    let compare = |exponent: i32, scale: f32, dither: Dither| {
        on_own_grid(&Form::independent(), &[1.0], exponent, scale, few_draws(), dither)
    };
    for exponent in [-14, -16] {
        found(&compare(exponent, worst_scale(exponent), Dither::Missing));
    }
    let seen = found(&compare(-18, worst_scale(-18), Dither::Missing));
    assert!(seen, "the statistics do not see the noise's lattice");
    assert_nothing_found(&[
        compare(-18, 1.0, Dither::Missing),
        compare(-14, worst_scale(-14), Dither::OfEngine),
        compare(-16, worst_scale(-16), Dither::OfEngine),
        compare(-18, worst_scale(-18), Dither::OfEngine),
    ]);
}

/// A sum whose terms cancel lies on the lattice of its largest term where the product that is added last has few digits. A dither of one last
/// place of the sum is too narrow there, and the statistics find it; that of the engine hides every lattice.
#[test]
fn the_dither_hides_the_lattice_of_terms_that_cancel() {
    let restarting = |form: Form| form.with_restarts(8).unwrap();
    // The standard deviations at the ages 0 … 7, where row t of the inverse strategy has these coefficients.
    let stddevs = |coefs: &dyn Fn(i32) -> f64| -> Vec<f64> {
        (0..8).map(|age| (0..=age).map(|k| coefs(k).powi(2)).sum::<f64>().sqrt()).collect()
    };
    let difference = |k: i32| if k < 2 { 1.0 } else { 0.0 };
    let cases = [
        (restarting(Form::regenerate(&[1.0, -1.0]).unwrap()), stddevs(&difference)),
        (restarting(Form::banded_toeplitz(&[1.0, 0.5]).unwrap()), stddevs(&|k| 0.5_f64.powi(k))),
        (
            restarting(Form::regenerate(&[1.0, -0.5, 0.5]).unwrap()),
            stddevs(&|k| [1.0, 0.5, 0.5].get(k as usize).copied().unwrap_or(0.0)),
        ),
    ];
    let own_grid = |(form, stddevs): &(Form, Vec<f64>), exponent, draws, dither| {
        on_own_grid(form, stddevs, exponent, worst_scale(exponent), draws, dither)
    };
    let narrow = own_grid(&cases[0], -17, 16_000_000, Dither::OfLastPlace);
    assert!(found(&narrow), "the statistics do not see the lattice of the terms");
    let mut nothing = vec![own_grid(&cases[0], -17, 16_000_000, Dither::OfEngine)];
    for case in &cases {
        nothing.extend([-17, -15].map(|exponent| own_grid(case, exponent, few_draws(), Dither::OfEngine)));
    }
    assert_nothing_found(&nothing);
}

/// What this file forms on grids of its own is what the engine releases on the plan's; and with one key, outputs for a gradient on the grid are
/// those for 0, moved there and rounded once to f32.
#[test]
fn outputs_are_moved_by_gradients_on_the_grid() {
    let steps = 6;
    let shard = || Shard::whole(LEN as u64).unwrap();
    for (plan_steps, stddev) in
        [(MANY_STEPS, 1.0), (MANY_STEPS, 64.0 / 71.0), (steps, 1.0), (steps, 64.0 / 71.0)]
    {
        let plan = Plan::new(plan_steps, Form::independent(), stddev).unwrap();
        let outputs = |g: f32| {
            let mut mechanism = Mechanism::cpu_with(&plan, key("moved"), shard(), ONE_THREAD).unwrap();
            let mut values = vec![g; LEN * steps as usize];
            values.chunks_mut(LEN).for_each(|values| mechanism.add_to(values).unwrap());
            values
        };
        let zero = outputs(0.0);
        for g in [1.0, -3.0 * plan.grid(0).unit, LARGE as f32] {
            let moved = zero.iter().map(|y| (f64::from(*y) + f64::from(g)) as f32);
            assert!(moved.eq(outputs(g)), "g = {g}");
        }
        for g in [0.0, 0.3] {
            let mut noise = Noise::new(plan.clone(), key("moved").run_key(plan.fingerprint()), shard());
            let mut values = vec![0.0; LEN * steps as usize];
            for (step, values) in values.chunks_mut(LEN).enumerate() {
                noise.add_on(&plan.grid(step as u64), g, Dither::OfEngine, step as u64, values);
            }
            assert!(values == outputs(g), "g = {g}");
        }
    }
}
