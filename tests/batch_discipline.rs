//! Where a plan draws batches, a step without its batch is refused, unless the caller asks for that explicitly.

use corrnoise::backend::{Backend, Replay, Step};
use corrnoise::{Error, Form, Key, Mechanism, Plan, Result, Sampler, Sampling, Shard};
use half::f16;

const DIM: usize = 500;

fn key() -> Key {
    Key::from_bytes([5; 32], "test")
}

fn shard() -> Shard {
    Shard::whole(DIM as u64).unwrap()
}

fn plan(sampling: Sampling) -> Plan {
    Plan::new(9, Form::blt(&[0.3], &[0.9]).unwrap(), 0.5).unwrap().with_sampling(sampling).unwrap()
}

fn drawn() -> [Sampling; 7] {
    [
        Sampling::Poisson { dataset_size: 100, sampling_prob: 0.5 },
        Sampling::BlockPoisson { dataset_size: 100, num_blocks: 3, sampling_prob: 0.5 },
        Sampling::Cyclic { dataset_size: 100, num_batches: 4 },
        Sampling::BallsInBins { dataset_size: 100, num_bins: 4 },
        Sampling::RandomAllocation { dataset_size: 100, num_bins: 4 },
        Sampling::SpacedPoisson { dataset_size: 100, min_sep: 3, sampling_prob: 0.5 },
        Sampling::TruncatedPoisson {
            dataset_size: 100,
            num_blocks: 1,
            sampling_prob: 0.5,
            max_batch_size: 40,
        },
    ]
}

fn refused(noise: &mut Mechanism, step: u64) {
    let mut gradient = vec![1.0_f32; DIM];
    let error = noise.add_to(&mut gradient).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::NoBatch { step: named } if named == step), "{text}");
    let parts = [format!("step {step} has no batch"), "for_batch(&batch)".into(), "unchecked_batch()".into()];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    assert!(gradient == vec![1.0; DIM] && noise.next_step() == step, "a refusal changes nothing");
}

#[test]
fn a_step_without_its_batch_is_refused() {
    for sampling in drawn() {
        let plan = plan(sampling);
        let sampler = Sampler::new(&plan, &key()).unwrap();
        let make = || Mechanism::cpu(&plan, key(), shard()).unwrap();
        let (mut checked, mut named) = (make(), make());
        for step in 0..9 {
            let (mut left, mut right) = (vec![0.0_f32; DIM], vec![0.0_f32; DIM]);
            refused(&mut checked, step);
            refused(&mut named, step);
            checked.for_batch(&sampler.batch(step).unwrap()).unwrap().add_to(&mut left).unwrap();
            named.unchecked_batch().unwrap().add_to(&mut right).unwrap();
            assert!(left == right && left != vec![0.0; DIM], "a batch and a refusal change no noise");
        }
        let past = named.unchecked_batch().unwrap().add_to(&mut vec![0.0_f32; DIM]);
        assert!(matches!(past, Err(Error::PastEnd { step: 9, .. })), "a batch makes no step past the end");
        assert!(matches!(checked.add_to(&mut vec![0.0_f32; DIM]), Err(Error::PastEnd { step: 9, .. })));
    }
}

#[test]
fn plans_that_draw_no_batches_are_as_before() {
    let min_sep = plan(Sampling::MinSep { min_sep: 2, max_participations: 3 });
    for plan in [min_sep, Plan::new(9, Form::independent(), 0.5).unwrap()] {
        let mut noise = Mechanism::cpu(&plan, key(), shard()).unwrap();
        noise.add_to(&mut vec![0.0_f32; DIM]).unwrap();
        noise.unchecked_batch().unwrap().add_to(&mut vec![0.0_f32; DIM]).unwrap();
        assert_eq!(noise.next_step(), 2);
    }
}

/// A step that is refused for its length keeps the admission; a step that was made uses it up, even one with a useless result.
#[test]
fn an_admission_is_for_one_step() {
    let plan = plan(drawn()[2]);
    let sampler = Sampler::new(&plan, &key()).unwrap();
    let mut noise = Mechanism::cpu(&plan, key(), shard()).unwrap();
    let mut gradient = vec![0.0_f32; DIM];
    noise.for_batch(&sampler.batch(0).unwrap()).unwrap();
    assert!(matches!(noise.add_to(&mut gradient[1..]), Err(Error::Length { .. })));
    noise.add_to(&mut gradient).unwrap();
    refused(&mut noise, 1);
    // A refused batch admits nothing, and an earlier admission stays valid for its step.
    assert!(noise.for_batch(&sampler.batch(2).unwrap()).is_err());
    refused(&mut noise, 1);
    noise.unchecked_batch().unwrap();
    assert!(noise.for_batch(&sampler.batch(2).unwrap()).is_err());
    noise.add_to(&mut gradient).unwrap();
    refused(&mut noise, 2);
    noise.unchecked_batch().unwrap().withdraw_batch();
    refused(&mut noise, 2);
    let overflow = noise.unchecked_batch().unwrap().add_to(&mut vec![f16::INFINITY; DIM]);
    assert!(matches!(overflow, Err(Error::Overflow { step: 2 })));
    refused(&mut noise, 3);
}

/// A device that counts steps and makes no noise.
#[derive(Default)]
struct Counter {
    scheduled: u64,
    made: u64,
}

impl Backend for Counter {
    type Gradients<'list, 'memory: 'list> = ();
    fn check(&self, _: &()) -> Result<()> {
        Ok(())
    }
    fn step(&mut self, _: &Step<'_>, _: ()) -> Result<()> {
        Ok(())
    }
    fn read_state(&self, _: usize, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn write_state(&mut self, _: usize, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

impl Replay for Counter {
    fn schedule(&mut self, _: &Step<'_>) -> Result<()> {
        self.scheduled += 1;
        Ok(())
    }
    fn start(&mut self) -> Result<()> {
        Ok(())
    }
    fn enqueue(&mut self, _: ()) -> Result<()> {
        self.made += 1;
        Ok(())
    }
    fn stop(&mut self) -> Result<u64> {
        Ok(std::mem::take(&mut self.made))
    }
}

/// Nobody sees the batch of a replayed step, so the caller vouches for it explicitly.
#[test]
fn steps_of_a_graph_are_vouched_for_by_name() {
    let plan = plan(drawn()[2]);
    let sampler = Sampler::new(&plan, &key()).unwrap();
    let mut noise = Mechanism::with_backend(&plan, key(), shard(), |_, _| Ok(Counter::default())).unwrap();
    let error = noise.begin_replay(3).unwrap_err();
    assert!(
        error.to_string().contains("step 0") && error.to_string().contains("unchecked_batch()"),
        "{error}"
    );
    let error = noise.for_batch(&sampler.batch(0).unwrap()).unwrap().begin_replay(1).unwrap_err();
    assert!(matches!(error, Error::NoBatchInReplay { step: 0 }), "{error}");
    assert_eq!(noise.backend().scheduled, 0, "nothing was handed over");
    assert!(matches!(noise.unchecked_batch().unwrap().begin_replay(10), Err(Error::PastEnd { .. })));
    noise.begin_replay(3).unwrap();
    assert!(matches!(noise.unchecked_batch(), Err(Error::Replaying { .. })));
    noise.enqueue(()).unwrap();
    noise.enqueue(()).unwrap();
    assert_eq!(noise.end_replay().unwrap(), 2);
    assert!(matches!(noise.run_step(()), Err(Error::NoBatch { step: 2 })));
    noise.unchecked_batch().unwrap().begin_replay(3).unwrap();
    assert_eq!(noise.end_replay().unwrap(), 0);
    assert!(matches!(noise.run_step(()), Err(Error::NoBatch { step: 2 })), "the replay used it up");
}
