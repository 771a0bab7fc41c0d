//! A step allocates no memory, on any thread.

use corrnoise::backend::Step;
use corrnoise::form::{Kernel, Regenerate, Term};
use corrnoise::{
    Cpu, CpuOptions, Family, Form, Incarnations, Key, Mechanism, Plan, Result, RowPart, RowSink, RunKey,
    Shard,
};
use corrnoise_testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// This is the only test of this file: the allocations of a second one, running beside it, would be counted too.
#[test]
fn a_step_allocates_nothing() {
    let term = |index, weight| Term { family: Family::Step, index, weight };
    let listed: Vec<Vec<Term>> = (0..500)
        .map(|t| vec![term(t, 1.0), Term { family: Family::TreeNode, ..term(t / 2, -0.5) }])
        .collect();
    let varying: Vec<Vec<f64>> = (0..500).map(|t| vec![1.0; 1 + t.min(3)]).collect();
    let forms = [
        Kernel::Regenerate(Regenerate::listed(&listed).unwrap()).into(),
        Form::banded(&varying).unwrap(),
        Form::blt(&[0.3], &[0.5]).unwrap().with_restarts(7).unwrap(),
        Form::independent(),
        Form::blt(&[0.3, 0.1], &[0.5, 0.95]).unwrap(),
        Form::banded_toeplitz(&[1.0, 0.5, 0.375, 0.3125]).unwrap(),
        // This ring is wide enough to make rows ahead.
        Form::banded_toeplitz(&[0.1; 16]).unwrap(),
        Form::regenerate(&[1.0, -0.5, -0.125, -0.0625]).unwrap(),
    ];
    for form in forms {
        for threads in [1, 2, 4] {
            let plan = Plan::new(500, form.clone(), 0.5).unwrap();
            let options = CpuOptions { threads, ..CpuOptions::default() };
            let shard = Shard::whole(100_003).unwrap();
            let mut noise = Mechanism::cpu_with(&plan, Key::from_os().unwrap(), shard, options).unwrap();
            let mut gradient = vec![0.0_f32; 100_003];
            let mut halves = vec![half::bf16::ZERO; 100_003];
            // The first steps may set up what a thread keeps, and on a busy machine a thread may start late.
            (0..20).for_each(|_| noise.add_to(&mut gradient).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(50));
            (0..3).for_each(|_| noise.add_to(&mut gradient).unwrap());
            let before = allocations();
            (0..300).for_each(|_| noise.add_to(&mut gradient).unwrap());
            (0..100).for_each(|_| noise.add_to(&mut halves).unwrap());
            assert_eq!(allocations(), before, "{form:?}, {threads} threads");
            rows_in_parts(&plan, noise.shard(), options);
        }
    }
    assert!(allocations() > 0, "the counter counts");
}

/// Memory for one part of a row, which every part overwrites.
struct OnePart(Vec<f32>);

impl RowSink for OnePart {
    fn room(&mut self, _: &RowPart) -> Result<&mut [f32]> {
        Ok(&mut self.0)
    }

    fn take(&mut self, _: &RowPart) -> Result<()> {
        Ok(())
    }
}

/// A row that is written out in parts allocates nothing either.
fn rows_in_parts(plan: &Plan, shard: &Shard, options: CpuOptions) {
    let keys = [RunKey::from_bytes([3; 32])];
    let mut cpu = Cpu::new(plan, &keys, shard, options).unwrap();
    let mut part = OnePart(vec![0.0; 32 * 512]);
    let (mut terms, incarnations) = (Vec::with_capacity(8), Incarnations::first());
    let mut before = 0;
    for number in 0..60 {
        if number == 30 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            before = allocations();
        }
        let step = Step::lower(plan, number, &incarnations, &mut terms).unwrap();
        cpu.write_row(&step, 32, &mut part).unwrap();
    }
    assert_eq!(allocations(), before, "{:?}, in parts", plan.form());
}
