//! Replays: graphs of some steps, launched in any order, too often, and after the end.

use crate::World;
use crate::batch::Batch;
use crate::run::{Run, is_made_by_the_host};
use corrnoise::Error;
use corrnoise::any::AnyGradients;
use cudarc::driver::CudaGraph;

struct Captured {
    graph: CudaGraph,
    /// One gradient per step of the graph.
    batches: Vec<Batch>,
}

/// How many steps a replay has, and how many were launched.
struct Count {
    handed: u64,
    launched: u64,
}

impl Count {
    /// A launch of a step on this gradient.
    fn launch(&mut self, run: &mut Run, batch: &mut Batch) {
        if self.launched < self.handed && !batch.is_nan {
            batch.expect_step(&mut run.cpu);
        } else if self.launched < self.handed {
            unreachable!("a gradient is not NaN before the end");
        }
        batch.is_nan |= self.launched >= self.handed;
        self.launched += 1;
    }
}

impl Run {
    fn capture(&mut self, world: &mut World) -> Captured {
        let steps = 1 + world.random.below(3);
        let batches: Vec<Batch> = (0..steps).map(|_| self.batch(world, "of a graph")).collect();
        crate::scenarios::begin(&self.stream).unwrap();
        if world.random.once_in(6) {
            // A capture that is given up with its branch open.
            self.noise().prepare().unwrap();
            let _ = crate::scenarios::end(&self.stream);
            let _ = self.stream.context().check_err();
            crate::scenarios::begin(&self.stream).unwrap();
        }
        for batch in &batches {
            (0..world.random.below(3)).for_each(|_| self.noise().prepare().unwrap());
            self.noise().enqueue(AnyGradients::Cuda(&batch.list())).unwrap();
        }
        let graph = crate::scenarios::end(&self.stream).unwrap().expect("a graph");
        Captured { graph, batches }
    }

    pub fn replay(&mut self, world: &mut World) {
        let handed = world.random.below(7).min(self.left() as usize) as u64;
        world.note(format!("run {}: replay of {handed} from {}", self.number, self.cpu.next_step()));
        let begun = self.noise().begin_replay(handed);
        if is_made_by_the_host(self.noise()) {
            assert!(matches!(begun, Err(Error::Device(_))), "{begun:?}");
            return;
        }
        begun.unwrap();
        let mut count = Count { handed, launched: 0 };
        let mut graphs: Vec<Captured> = (0..world.random.below(3)).map(|_| self.capture(world)).collect();
        let over = world.random.once_in(4);
        for _ in 0..1 + world.random.below(6) {
            match world.random.below(6) {
                0..3 if !graphs.is_empty() => {
                    let at = world.random.below(graphs.len());
                    let steps = graphs[at].batches.len() as u64;
                    if over || count.launched + steps <= handed {
                        world.note(format!("launch graph {at} of {steps} steps"));
                        graphs[at].graph.launch().unwrap();
                        let mut batches = std::mem::take(&mut graphs[at].batches);
                        batches.iter_mut().for_each(|batch| count.launch(self, batch));
                        graphs[at].batches = batches;
                    }
                }
                3 | 4 if over || count.launched < handed => {
                    world.note("enqueue");
                    let mut batch = self.batch(world, "enqueued");
                    self.noise().enqueue(AnyGradients::Cuda(&batch.list())).unwrap();
                    count.launch(self, &mut batch);
                    world.pending.push(batch);
                }
                _ => {
                    world.note("prepare and refusals within the replay");
                    self.noise().prepare().unwrap();
                    let batch = self.batch(world, "refused in a replay");
                    let short = self.noise().enqueue(AnyGradients::Cuda(&[]));
                    assert!(matches!(short, Err(Error::Length { .. })), "{short:?}");
                    let noise = self.noise();
                    let outcomes = [
                        noise.run_step(AnyGradients::Cuda(&batch.list())),
                        noise.state().map(drop),
                        noise.begin_replay(1),
                    ];
                    for outcome in outcomes {
                        assert!(matches!(outcome, Err(Error::Replaying { .. })), "{outcome:?}");
                    }
                    world.pending.push(batch);
                }
            }
        }
        if world.random.once_in(5) {
            world.note("dropped in the replay");
            self.noise = None;
            self.ended(world, graphs);
            // The run was in the middle of nobody knows what: it goes on from its checkpoint.
            self.recover(world);
            return;
        }
        let ended = self.noise().end_replay();
        if count.launched > handed {
            assert!(matches!(ended, Err(Error::Device(_))), "{ended:?}");
            assert!(matches!(self.noise().check_usable(), Err(Error::Poisoned { .. })));
            self.ended(world, graphs);
            self.recover(world);
            return;
        }
        assert_eq!(ended.unwrap(), count.launched);
        self.ended(world, graphs);
    }

    /// The graphs after the end of their replay: they are launched once more, or not.
    fn ended(&mut self, world: &mut World, graphs: Vec<Captured>) {
        for Captured { graph, mut batches } in graphs {
            if world.random.once_in(2) {
                world.note("launch an ended graph");
                graph.launch().unwrap();
                batches.iter_mut().for_each(|batch| batch.is_nan = true);
            }
            world.pending.append(&mut batches);
        }
    }
}
