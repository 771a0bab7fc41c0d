//! Each step is made once, in order, never past the end; bad input changes nothing; a failure half-way ends the run.

use corrnoise::backend::{Backend, Step};
use corrnoise::{Cpu, CpuOptions, Error, Form, Key, Layout, Mechanism, Plan, Result, RunKey, Shard};
use half::f16;

fn plan(steps: u64) -> Plan {
    Plan::new(steps, Form::blt(&[0.3], &[0.9]).unwrap(), 0.5).unwrap()
}

fn mechanism(steps: u64, dim: u64) -> Mechanism {
    Mechanism::cpu(&plan(steps), Key::from_bytes([5; 32], "test"), Shard::whole(dim).unwrap()).unwrap()
}

#[test]
fn the_step_after_the_last_is_refused() {
    let mut noise = mechanism(2, 100);
    let mut gradient = vec![0.0_f32; 100];
    noise.add_to(&mut gradient).unwrap();
    noise.add_to(&mut gradient).unwrap();
    let before = gradient.clone();
    let error = noise.add_to(&mut gradient).unwrap_err();
    assert!(matches!(error, Error::PastEnd { step: 2, num_steps: 2 }));
    assert!(error.to_string().contains("step 2") && error.to_string().contains("2 steps"), "{error}");
    assert_eq!(gradient, before);
}

#[test]
fn a_wrong_length_changes_nothing() {
    let (mut noise, mut untouched) = (mechanism(3, 100), mechanism(3, 100));
    for len in [0, 99, 101] {
        let mut gradient = vec![1.0_f32; len];
        let error = noise.add_to(&mut gradient).unwrap_err().to_string();
        assert!(error.contains(&format!("length {len}")) && error.contains("100"), "{error}");
        assert!(gradient.iter().all(|g| *g == 1.0));
    }
    let mut wrong_count = [&mut [0.0_f32; 100][..], &mut [0.0_f32; 1][..]];
    assert!(
        noise
            .add_to_all(&mut wrong_count)
            .unwrap_err()
            .to_string()
            .contains("list of gradients has length 2")
    );
    assert_eq!(noise.next_step(), 0);
    let (mut left, mut right) = (vec![0.0_f32; 100], vec![0.0_f32; 100]);
    noise.add_to(&mut left).unwrap();
    untouched.add_to(&mut right).unwrap();
    assert_eq!(left, right);
}

#[test]
fn the_wrong_gradient_is_counted() {
    let layout = Layout::new([("w", 10), ("b", 3)]).unwrap();
    let mut noise = Mechanism::cpu(&plan(1), Key::from_bytes([5; 32], "test"), layout.whole()).unwrap();
    let mut slices = [&mut [0.0_f32; 10][..], &mut [0.0_f32; 4][..]];
    let error = noise.add_to_all(&mut slices).unwrap_err().to_string();
    assert!(error.contains("gradient 1 has length 4: expected 3"), "{error}");
}

#[test]
fn an_f16_overflow_is_reported_and_counts_as_a_step() {
    // A ring, so that a state left half-way would show in the next step.
    let plan = Plan::new(5, Form::banded_toeplitz(&[1.0, 0.5, 0.25]).unwrap(), 1000.0).unwrap();
    let make =
        || Mechanism::cpu(&plan, Key::from_bytes([5; 32], "test"), Shard::whole(20_000).unwrap()).unwrap();
    let (mut noise, mut same) = (make(), make());
    let mut gradient = vec![f16::from_f32(0.0); 20_000];
    noise.add_to(&mut gradient).unwrap();
    gradient.fill(f16::MAX);
    let error = noise.add_to(&mut gradient).unwrap_err();
    assert!(matches!(error, Error::Overflow { step: 1 }), "{error}");
    assert_eq!(noise.next_step(), 2);
    let mut other = vec![0.0_f32; 20_000];
    same.add_to(&mut other).unwrap();
    same.add_to(&mut other).unwrap();
    let (mut left, mut right) = (vec![0.0_f32; 20_000], vec![0.0_f32; 20_000]);
    noise.add_to(&mut left).unwrap();
    same.add_to(&mut right).unwrap();
    assert_eq!(left, right);
}

#[test]
fn a_backend_of_another_plan_is_refused() {
    let blt = Plan::new(5, Form::blt(&[0.1; 8], &[0.5; 8]).unwrap(), 1.0).unwrap();
    let ring = Plan::new(5, Form::banded_toeplitz(&[1.0; 9]).unwrap(), 1.0).unwrap();
    let none = Plan::new(5, Form::independent(), 1.0).unwrap();
    for (plan, other) in [(&blt, &none), (&blt, &ring), (&ring, &none), (&ring, &blt)] {
        let (key, shard) = (Key::from_bytes([5; 32], "test"), Shard::whole(1000).unwrap());
        let wrong = |keys: &[RunKey], shard: &Shard| Cpu::new(other, keys, shard, CpuOptions::default());
        let mut noise = Mechanism::with_backend(plan, key, shard, wrong).unwrap();
        let mut gradient = vec![0.0_f32; 1000];
        // The second step of a ring is the first that reads its history.
        let outcome = noise.add_to(&mut gradient).and_then(|()| noise.add_to(&mut gradient));
        assert!(outcome.unwrap_err().to_string().contains("not one of this backend's plan"));
    }
}

#[test]
fn a_poisoned_mechanism_does_not_save() {
    let folder = tempfile::tempdir().unwrap();
    let (key, shard) = (Key::from_bytes([5; 32], "test"), Shard::whole(10).unwrap());
    let fail: fn() -> Result<()> = || Err(Error::Device("lost".into()));
    let mut noise = Mechanism::with_backend(&plan(9), key, shard, |_, _| Ok(Fragile(fail))).unwrap();
    noise.run_step(()).unwrap();
    noise.run_step(()).unwrap_err();
    let error = noise.save(folder.path().join("checkpoint")).unwrap_err();
    assert!(matches!(error, Error::Poisoned { step: 1 }), "a state that is half-way is not saved: {error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A device that fails or panics at a step of its own choosing.
struct Fragile(fn() -> Result<()>);

impl Backend for Fragile {
    type Gradients<'list, 'memory: 'list> = ();
    fn check(&self, _: &()) -> Result<()> {
        Ok(())
    }
    fn step(&mut self, step: &Step<'_>, _: ()) -> Result<()> {
        if step.number == 1 { (self.0)() } else { Ok(()) }
    }
    fn read_state(&self, _: usize, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn write_state(&mut self, _: usize, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

#[test]
fn an_error_or_a_panic_half_way_poisons() {
    let failures: [fn() -> Result<()>; 2] = [|| Err(Error::Device("lost".into())), || panic!("lost")];
    for failure in failures {
        let key = Key::from_bytes([5; 32], "test");
        let shard = Shard::whole(10).unwrap();
        let mut noise = Mechanism::with_backend(&plan(9), key, shard, |_, _| Ok(Fragile(failure))).unwrap();
        noise.run_step(()).unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| noise.run_step(())));
        assert!(!matches!(outcome, Ok(Ok(()))));
        assert!(matches!(noise.run_step(()), Err(Error::Poisoned { step: 1 })));
        assert_eq!(noise.next_step(), 1);
    }
}

#[test]
fn a_state_that_does_not_fit_is_an_error() {
    let form = Form::banded_toeplitz(&[1.0; 64]).unwrap();
    let plan = Plan::new(10, form, 1.0).unwrap();
    let shard = Shard::whole(Shard::MAX_DIM).unwrap();
    let error = Mechanism::cpu(&plan, Key::from_bytes([5; 32], "test"), shard).err().unwrap();
    assert!(error.to_string().contains("78812993478983680 bytes"), "{error}");
}

#[test]
fn runs_plans_and_keys_do_not_share_noise() {
    let make = |plan: &Plan, key: Key| {
        let mut out = vec![0.0_f32; 64];
        Mechanism::cpu(plan, key, Shard::whole(64).unwrap()).unwrap().add_to(&mut out).unwrap();
        out
    };
    let key = || Key::from_bytes([5; 32], "test");
    let base = make(&plan(3), key());
    assert_eq!(base, make(&plan(3), key()));
    assert_ne!(base, make(&plan(4), key()));
    assert_ne!(base, make(&plan(3), Key::from_bytes([5; 32], "second")));
    assert_ne!(base, make(&plan(3), Key::from_bytes([6; 32], "test")));
}
