//! Throughput of every form, beside a plain pass over the same bytes in the same run.
//!
//! `cargo bench --bench forms`; a filter selects, e.g. `-- blt4`. Elements are parameters; the lines named `traffic` move the
//! bytes of the form next to them and hardly compute, so their time is the bound that memory sets.

use corrnoise::{CpuOptions, Form, Key, Mechanism, Plan, Rounds, Shard};
use corrnoise_testkit::cases;
use corrnoise_testkit::traffic::Traffic;
use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use std::time::Duration;

const DIM: usize = 10_000_000;
const NUM_STEPS: u64 = 1 << 20;

fn threads() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all == 1 { vec![1] } else { vec![1, all] }
}

fn mechanism(form: Form, rounds: Rounds, dim: usize, threads: usize) -> Mechanism {
    let plan = Plan::new(NUM_STEPS, form, 0.01).unwrap().with_rounds(rounds).unwrap();
    let options = CpuOptions { threads, ..CpuOptions::default() };
    Mechanism::cpu_with(&plan, Key::from_os().unwrap(), Shard::whole(dim as u64).unwrap(), options).unwrap()
}

fn group<'a>(criterion: &'a mut Criterion, name: &str, dim: usize) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(dim as u64));
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    group
}

/// One thread, one gradient that stays in L1: the sampler, and an add that costs little.
fn sampling(criterion: &mut Criterion) {
    let dim = 4096;
    let mut group = group(criterion, "sampling in cache, 1 thread", dim);
    for rounds in [Rounds::R8, Rounds::R12, Rounds::R20] {
        let mut noise = mechanism(Form::independent(), rounds, dim, 1);
        let mut gradient = vec![0.0_f32; dim];
        group.bench_function(format!("{} rounds", u32::from(rounds)), |bencher| {
            bencher.iter(|| {
                // The plan is long, but criterion has no limit: at the end of the plan the run starts again.
                if noise.next_step() == NUM_STEPS {
                    noise = mechanism(Form::independent(), rounds, dim, 1);
                }
                noise.add_to(&mut gradient).unwrap();
            });
        });
    }
}

fn forms(criterion: &mut Criterion) {
    for name in ["independent", "blt4", "blt8", "ring16", "ring64", "regenerate4", "regenerate64"] {
        let form = cases::form(name, NUM_STEPS).unwrap().unwrap();
        let mut group = group(criterion, name, DIM);
        for threads in threads() {
            let mut gradient = vec![0.0_f32; DIM];
            let mut noise = mechanism(form.clone(), Rounds::R12, DIM, threads);
            // A ring is timed once all its slots are in use.
            (0..=form.num_slots()).for_each(|_| noise.add_to(&mut gradient).unwrap());
            group.bench_function(format!("noise, {threads} threads"), |bencher| {
                bencher.iter(|| noise.add_to(&mut gradient).unwrap());
            });
            drop((noise, gradient));
            let mut traffic = Traffic::new(&form, DIM);
            group.bench_function(format!("traffic, {threads} threads"), |bencher| {
                bencher.iter(|| traffic.step(threads));
            });
        }
    }
}

criterion_group!(benches, sampling, forms);
criterion_main!(benches);
