//! One run on a device and the same one on the CPU.

use crate::batch::Batch;
use crate::{DEVICE, World};
use corrnoise::any::{AnyBackend, AnyGradients, Place};
use corrnoise::form::{Kernel, Regenerate};
use corrnoise::{Checkpoint, CpuOptions, Error, Form, Key, Mechanism, Plan, Resume, Rounds, RunKey, Shard};
use corrnoise_cuda::{CudaOptions, HostMadeOptions};
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use cuda::control::{self, Spoil};
use cudarc::driver::CudaStream;
use std::sync::Arc;

pub struct Run {
    /// Which run of the history this is.
    pub number: u64,
    pub plan: Plan,
    pub shard: Shard,
    pub stream: Arc<CudaStream>,
    /// The run on the device; none for a moment, while it is replaced.
    pub noise: Option<Mechanism<AnyBackend>>,
    pub cpu: Mechanism,
    /// The last checkpoint, by the CPU engine's hand.
    saved: Vec<u8>,
}

pub fn key(number: u64) -> Key {
    Key::from_bytes([number as u8; 32], "histories")
}

fn a_form(world: &mut World, steps: u64) -> Form {
    let random = &mut world.random;
    let form = match random.below(8) {
        0 | 1 => every_form(1).swap_remove(1 + random.below(8)).1,
        2 | 3 => Form::banded_toeplitz(&square_root_coefs(2 + random.below(20))).unwrap(),
        4 => Form::regenerate(&inverse_square_root_coefs(1 + random.below(12))).unwrap(),
        5 => {
            let (bands, slope) = (1 + random.below(9), random.below(3));
            let row = |t: usize| {
                (0..=t.min(bands + slope * t % 5)).map(move |a| 1.5 / (1.0 + a as f64 + 0.1 * t as f64))
            };
            Form::banded(&(0..steps as usize).map(|t| row(t).collect()).collect::<Vec<Vec<f64>>>()).unwrap()
        }
        6 => {
            let dense: Vec<Vec<f64>> =
                (0..steps as usize).map(|t| inverse_square_root_coefs(t + 1)).collect();
            Kernel::Regenerate(Regenerate::varying(&dense).unwrap()).into()
        }
        _ => Form::independent(),
    };
    let period = 1 + random.below(12) as u64;
    match form.clone().with_restarts(period) {
        Ok(restarted) if random.once_in(3) => restarted,
        _ => form,
    }
}

fn a_shard(world: &mut World) -> Shard {
    let random = &mut world.random;
    let space = Shard::whole(1 << 40).unwrap();
    let mut at = random.pick(&[0, 77, 509, (1 << 32) - 700, (1 << 36) - 900]);
    let lens = [1, 3, 17, 511, 512, 513, 1_030, 2_600];
    let ranges: Vec<_> = (0..1 + random.below(4))
        .map(|_| {
            let len = random.pick(&lens);
            let range = at..at + len;
            at += len + random.pick(&[0, 1, 300, 512]);
            range
        })
        .collect();
    space.select(&ranges).unwrap()
}

/// The number of rows at a time and whether they are prepared, or noise that the host makes.
fn a_place(world: &mut World, form: &Form, stream: &Arc<CudaStream>) -> Place {
    let random = &mut world.random;
    let stream = stream.clone().into();
    if random.once_in(5) {
        let cpu = CpuOptions { threads: 1 + random.below(2), ..CpuOptions::default() };
        let options = HostMadeOptions { cpu, chunk_bytes: 1, window: 1 + random.below(3) };
        return Place::HostMade(stream, options);
    }
    loop {
        let options = CudaOptions {
            rows_ahead: random.pick(&[None, Some(1), Some(2), Some(3), Some(5), Some(8), Some(16)]),
            prepare: !random.once_in(3),
            max_state_bytes: None,
        };
        if options.rows_ahead_of(form, 1, 0).is_ok() {
            return Place::Cuda(stream, options);
        }
    }
}

pub fn is_made_by_the_host(noise: &Mechanism<AnyBackend>) -> bool {
    matches!(noise.backend(), AnyBackend::HostMade(_))
}

impl Run {
    /// A run from its first step.
    pub fn begin(world: &mut World) -> Run {
        world.begun += 1;
        let number = world.begun;
        let steps = 6 + world.random.below(40) as u64;
        let form = a_form(world, steps);
        let rounds = world.random.pick(&[Rounds::R8, Rounds::R12, Rounds::R20]);
        let plan = Plan::new(steps, form, 0.75).unwrap().with_rounds(rounds).unwrap();
        let plan = if world.random.once_in(2) { plan.with_finest_grid().unwrap() } else { plan };
        let stream = world.random.pick(&world.streams.clone());
        let shard = a_shard(world);
        let place = a_place(world, plan.form(), &stream);
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(&plan, keys, shard, &place);
        let noise = Mechanism::with_backend(&plan, key(number), shard.clone(), make).unwrap();
        let cpu = Mechanism::cpu(&plan, key(number), shard.clone()).unwrap();
        let saved = cpu.state().unwrap();
        world.note(format!(
            "run {number}: {:?}, {steps} steps, {:?}, {}",
            plan.form(),
            shard.segments(),
            noise.backend().describe()
        ));
        Run { number, plan, shard, stream, noise: Some(noise), cpu, saved }
    }

    pub fn noise(&mut self) -> &mut Mechanism<AnyBackend> {
        self.noise.as_mut().expect("a run")
    }

    pub fn left(&self) -> u64 {
        self.plan.num_steps() - self.cpu.next_step()
    }

    pub fn batch(&self, world: &mut World, what: &str) -> Batch {
        let what = format!("run {}, step {}, {what}", self.number, self.cpu.next_step());
        Batch::new(&self.shard, &self.stream, &mut world.random, what)
    }

    pub fn step(&mut self, world: &mut World) {
        world.note(format!("run {}: step {}", self.number, self.cpu.next_step()));
        let mut batch = self.batch(world, "a step");
        let made = self.noise().run_step(AnyGradients::Cuda(&batch.list()));
        if self.left() == 0 {
            assert!(matches!(made, Err(Error::PastEnd { .. })), "{made:?}");
        } else {
            made.unwrap();
            batch.expect_step(&mut self.cpu);
        }
        world.pending.push(batch);
    }

    pub fn step_on_host(&mut self, world: &mut World) {
        world.note(format!("run {}: step {} on host memory", self.number, self.cpu.next_step()));
        if self.left() == 0 {
            return;
        }
        let batch = self.batch(world, "on host memory");
        let Run { noise, cpu, .. } = self;
        batch.on_host(cpu, |gradients| noise.as_mut().expect("a run").run_step(gradients)).unwrap();
    }

    pub fn prepare(&mut self, world: &mut World) {
        world.note(format!("run {}: prepare {}", self.number, self.cpu.next_step()));
        (0..1 + world.random.below(2)).for_each(|_| self.noise().prepare().unwrap());
    }

    /// Gradients that do not fit change nothing.
    pub fn refuse(&mut self, world: &mut World) {
        world.note(format!("run {}: refusals", self.number));
        if self.left() == 0 {
            return;
        }
        let batch = self.batch(world, "refused");
        let mut list = batch.list();
        list.pop();
        assert!(matches!(self.noise().run_step(AnyGradients::Cuda(&list)), Err(Error::Length { .. })));
        let outcome = self.noise().enqueue(AnyGradients::Cuda(&batch.list()));
        assert!(matches!(outcome, Err(Error::Device(_))), "nothing was handed over: {outcome:?}");
        let past = self.left() + 1;
        assert!(matches!(self.noise().begin_replay(past), Err(Error::PastEnd { .. })));
        assert_eq!(self.noise().end_replay().unwrap(), 0);
        world.pending.push(batch);
    }

    /// Within a capture nothing is allowed that a graph would repeat, and the capture goes on.
    pub fn refuse_in_capture(&mut self, world: &mut World) {
        world.note(format!("run {}: a capture", self.number));
        let batch = self.batch(world, "within a capture");
        crate::scenarios::begin(&self.stream).unwrap();
        let noise = self.noise.as_mut().expect("a run");
        let outcomes = [
            noise.run_step(AnyGradients::Cuda(&batch.list())),
            noise.prepare(),
            noise.state().map(drop),
            noise.begin_replay(0),
            noise.backend().first_overflow().map(drop),
        ];
        let dropped = world.random.once_in(4);
        if dropped {
            self.noise = None;
        }
        drop(crate::scenarios::end(&self.stream).unwrap());
        for outcome in outcomes {
            assert!(matches!(outcome, Err(Error::Device(_))), "{outcome:?}");
        }
        world.pending.push(batch);
        if dropped {
            *self = Run::begin(world);
        }
    }

    /// The checkpoints are the same.
    pub fn checkpoint(&mut self, world: &mut World) {
        world.note(format!("run {}: checkpoint {}", self.number, self.cpu.next_step()));
        self.saved = self.cpu.state().unwrap();
        let state = self.noise().state().unwrap();
        assert!(state == self.saved, "run {}: the states differ at {}", self.number, self.cpu.next_step());
    }

    fn resumed(&self, world: &mut World, exactly: bool) -> (Mechanism<AnyBackend>, Mechanism) {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&world.random.next().to_le_bytes());
        let resume = if exactly { Resume::Exact } else { Resume::SharedIncarnation(nonce) };
        let place = a_place(world, self.plan.form(), &self.stream);
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(&self.plan, keys, shard, &place);
        let at = || vec![Checkpoint::from_bytes(self.saved.clone()).unwrap()];
        let (plan, key, shard) = (&self.plan, || key(self.number), || self.shard.clone());
        let noise = Mechanism::resume_from(plan, key(), shard(), at(), resume, make).unwrap();
        let options = CpuOptions::default();
        let make = |keys: &[RunKey], shard: &Shard| corrnoise::Cpu::new(&self.plan, keys, shard, options);
        let cpu = Mechanism::resume_from(plan, key(), shard(), at(), resume, make).unwrap();
        world.note(format!(
            "run {}: resume at {}, exactly: {exactly}, {}",
            self.number,
            cpu.next_step(),
            noise.backend().describe()
        ));
        (noise, cpu)
    }

    /// The run goes on from its last checkpoint under a key of its own, or from here under the same, in another way.
    pub fn resume(&mut self, world: &mut World) {
        let exactly = world.random.once_in(2);
        if exactly {
            self.checkpoint(world);
        }
        if world.random.once_in(2) {
            self.noise = None;
        }
        let (noise, cpu) = self.resumed(world, exactly);
        (self.noise, self.cpu) = (Some(noise), cpu);
    }

    /// The same object goes on from its last checkpoint.
    pub fn reload(&mut self, world: &mut World) {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&world.random.next().to_le_bytes());
        let resume = Resume::SharedIncarnation(nonce);
        let place = a_place(world, self.plan.form(), &self.stream);
        let plan = self.plan.clone();
        let at = || vec![Checkpoint::from_bytes(self.saved.clone()).unwrap()];
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(&plan, keys, shard, &place);
        self.noise.as_mut().expect("a run").reload_from(at(), resume, make).unwrap();
        self.cpu.reload_cpu(at(), resume, CpuOptions::default()).unwrap();
        let told = self.noise().backend().describe();
        world.note(format!("run {}: reload at {}, {told}", self.number, self.cpu.next_step()));
    }

    /// A call of the driver fails somewhere in an action. What says so must say it, and what goes on has the same bits.
    pub fn fail(&mut self, world: &mut World) {
        if self.left() == 0 {
            return;
        }
        let action = world.random.below(5);
        let nth = world.random.below([12, 8, 30, 14, 14][action]) as u64;
        let mut batch = self.batch(world, "of which a call fails");
        let list = batch.list();
        let noise = self.noise.as_mut().expect("a run");
        control::spoil(Some(Spoil::Fail(nth)));
        let outcome = match action {
            0 => noise.run_step(AnyGradients::Cuda(&list)),
            1 => noise.prepare(),
            2 => noise.state().map(drop),
            3 => noise.begin_replay(2.min(self.plan.num_steps() - self.cpu.next_step())),
            _ => noise.prepare().and_then(|()| noise.run_step(AnyGradients::Cuda(&list))),
        };
        let (_, hit) = control::spoilt();
        control::spoil(None);
        let _ = self.stream.context().check_err();
        world
            .note(format!("run {}: call {nth}, {hit:?}, fails in action {action}: {outcome:?}", self.number));
        let is_replaying = action == 3 && outcome.is_ok();
        let noise = self.noise.as_mut().expect("a run");
        if is_replaying {
            assert_eq!(noise.end_replay().unwrap(), 0);
        }
        let poisoned = matches!(noise.check_usable(), Err(Error::Poisoned { .. }));
        assert!(!poisoned || outcome.is_err());
        let stepped = noise.next_step() > self.cpu.next_step();
        assert_eq!(stepped, outcome.is_ok() && [0, 4].contains(&action));
        if stepped {
            batch.expect_step(&mut self.cpu);
        }
        if !poisoned {
            world.pending.push(batch);
        } else {
            // Anything may be in the gradient; whoever holds it must not go before the engine.
            self.stream.synchronize().unwrap();
            let (noise, cpu) = self.resumed(world, false);
            (self.noise, self.cpu) = (Some(noise), cpu);
        }
        assert_eq!(control::noticed(DEVICE), None);
    }

    /// After a history that poisoned the run.
    pub fn recover(&mut self, world: &mut World) {
        let (noise, cpu) = self.resumed(world, false);
        (self.noise, self.cpu) = (Some(noise), cpu);
    }
}
