//! Runs a launch: every thread of every block, one warp of 32 lanes at a time, in ascending order; a warp that waits for the
//! others of its block is put aside.
//!
//! A register is 32 values side by side, so that one decoded operation is one loop that compiles to a few vector
//! instructions. On x86-64 the loops are compiled for AVX2 with FMA, where a fused multiply-add is one instruction, and once
//! more, masked, for processors without.

mod alu;
mod approx;
mod block;
mod convert;
mod lanes;
mod memory;
mod rare;
mod scalar;
mod toward_zero;
mod warp;

use std::collections::HashMap;
use std::sync::Arc;

use crate::memory::{Accessor, Memory, Shared};
use crate::ptx::{Kernel, Special};
use crate::status::Failure;
use crate::traffic::Traffic;
pub(crate) use approx::Approximation;
use block::Crew;
use lanes::{Lanes, Registers, WARP};

/// A kernel with its arguments, copied when it was submitted.
pub(crate) struct Launch {
    pub kernel: Arc<Kernel>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// The parameter block: every argument at its offset.
    pub params: Vec<u8>,
}

/// The number of instructions after which a warp counts as endless, unless a test sets another: about a second, and a thousand
/// times what the kernels need.
const LIMIT: u64 = 1 << 26;

/// What tests configure and observe of a device's launches.
pub(crate) struct Watch {
    /// The number of instructions that a warp may execute.
    pub limit: u64,
    /// The value of a register before its first write, in even lanes and in odd ones.
    pub unwritten: [u32; 2],
    pub approximation: Approximation,
    /// The first block of a launch that runs; the blocks before it are left out.
    pub first_block: u64,
    /// The arguments of the last launch of each kernel by name, while launches are watched.
    pub launches: Option<HashMap<String, Vec<u8>>>,
    /// Per line of the module, while lines are watched: [`Watch::RAN`] and [`Watch::PASSED`].
    pub lines: Option<Vec<u8>>,
}

impl Watch {
    /// The flag of a line whose instruction a thread executed.
    const RAN: u8 = 1;
    /// The flag of a line that a thread skipped, because its guard was false.
    const PASSED: u8 = 2;
}

impl Default for Watch {
    fn default() -> Self {
        let approximation = Approximation::default();
        let unwritten = crate::control::UNWRITTEN;
        Self { limit: LIMIT, unwritten, approximation, first_block: 0, launches: None, lines: None }
    }
}

/// Runs `launch` to its end or its first fault.
pub(crate) fn run(
    launch: &Launch,
    memory: &mut Memory,
    traffic: &mut Traffic,
    watch: &mut Watch,
) -> Result<(), Failure> {
    traffic.launches += 1;
    if let Some(launches) = &mut watch.launches {
        launches.insert(launch.kernel.name.clone(), launch.params.clone());
    }
    let machine = Machine::new(launch, memory, traffic, watch);
    #[cfg(target_arch = "x86_64")]
    if machine.has_avx2 {
        // SAFETY: the processor has both features.
        return unsafe { run_avx2(machine) };
    }
    run_grid::<{ cfg!(not(target_arch = "x86_64")) }>(machine)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2(machine: Machine) -> Result<(), Failure> {
    run_grid::<true>(machine)
}

/// Runs every warp of the grid. Inlined like all that it calls per instruction, so that [`run_avx2`] compiles it for its
/// features. Unless `FAST`, full warps take the path of partial ones, which saves a copy of all operations that hardly any
/// processor would use.
#[inline(always)]
fn run_grid<const FAST: bool>(mut machine: Machine) -> Result<(), Failure> {
    let launch = machine.launch;
    let [threads, blocks] = [launch.block, launch.grid].map(product);
    let mut crew = Crew::new(&machine, threads);
    for block in machine.watch.first_block..blocks {
        crew.enter_block(&mut machine, block);
        while let Some(warp) = crew.next(&mut machine).map_err(|error| machine.explain(block, error))? {
            machine.warp::<FAST>(warp).map_err(|fault| machine.explain(block, fault))?;
        }
    }
    Ok(())
}

fn product(dimensions: [u32; 3]) -> u64 {
    dimensions.iter().map(|&n| u64::from(n)).product()
}

/// The coordinates of element `index` of a grid or block, x fastest.
fn unravel(index: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(x), u64::from(y));
    [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
}

/// A fault, and the instruction and lane where it happened.
struct Fault {
    pc: usize,
    lane: usize,
    failure: Failure,
}

/// The state of a launch in progress.
struct Machine<'a> {
    kernel: &'a Kernel,
    launch: &'a Launch,
    registers: Registers,
    memory: Accessor<'a>,
    traffic: &'a mut Traffic,
    watch: &'a mut Watch,
    shared: Shared<'a>,
    /// Number in the block of lane 0's thread.
    first: u64,
    /// Number in the launch of lane 0's thread, modulo 2^32.
    first_thread: u32,
    /// Whether the processor has AVX2 and FMA.
    has_avx2: bool,
}

fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl<'a> Machine<'a> {
    fn new(
        launch: &'a Launch,
        memory: &'a mut Memory,
        traffic: &'a mut Traffic,
        watch: &'a mut Watch,
    ) -> Self {
        let kernel = &*launch.kernel;
        let mut registers = Registers::new(kernel.num_registers, watch.unwritten);
        registers.approximation = watch.approximation;
        for constant in &kernel.constants32 {
            registers.x[usize::from(constant.register)] = Lanes([constant.value as u32; WARP]);
        }
        for constant in &kernel.constants64 {
            registers.y[usize::from(constant.register)] = Lanes([constant.value; WARP]);
        }
        let memory = Accessor::new(memory, kernel, product(launch.block).div_ceil(WARP as u64) as usize);
        let shared = Shared::new(kernel);
        let (first, first_thread, has_avx2) = (0, 0, has_avx2());
        let mut machine =
            Self { kernel, launch, registers, memory, traffic, watch, shared, first, first_thread, has_avx2 };
        machine.fill(|special, lane| match special {
            Special::Threads(axis) => Some(launch.block[axis]),
            Special::Blocks(axis) => Some(launch.grid[axis]),
            Special::Lane => Some(lane as u32),
            _ => None,
        });
        machine
    }

    fn enter_block(&mut self, block: [u32; 3]) {
        self.fill(|special, _| match special {
            Special::Block(axis) => Some(block[axis]),
            _ => None,
        });
    }

    /// Says which warp runs: `first` is the number of lane 0's thread in the block, `number` its number in the launch.
    fn place_warp(&mut self, first: u64, number: u64) {
        (self.first, self.first_thread) = (first, number as u32);
        self.memory.order.enter_warp(first as usize / WARP, number as u32);
    }

    /// Fills the registers that tell the threads of a warp apart.
    fn enter_warp(&mut self) {
        let (first, block) = (self.first, self.launch.block);
        self.fill(|special, lane| match special {
            Special::Thread(axis) => Some(unravel(first + lane as u64, block)[axis]),
            _ => None,
        });
    }

    /// Sets every special register for which `value` returns a value.
    fn fill(&mut self, value: impl Fn(Special, usize) -> Option<u32>) {
        for &(register, special) in &self.kernel.specials {
            for (lane, to) in self.registers.x[usize::from(register)].0.iter_mut().enumerate() {
                *to = value(special, lane).unwrap_or(*to);
            }
        }
    }

    /// The failure that explains a fault in words: kernel, block, thread, line, and what went wrong.
    fn explain(&self, block: u64, fault: Fault) -> Failure {
        let (line, source) = &self.kernel.lines[fault.pc];
        let block = place(block, self.launch.grid);
        let thread = place(self.first + fault.lane as u64, self.launch.block);
        let text = format!(
            "kernel {}, block {block}, thread {thread}, line {line} `{source}`: {}",
            self.kernel.name, fault.failure.text
        );
        Failure::new(fault.failure.status, text)
    }
}

/// An index as a number, or as coordinates if there is more than one axis.
fn place(index: u64, dimensions: [u32; 3]) -> String {
    match (unravel(index, dimensions), dimensions) {
        ([x, _, _], [_, 1, 1]) => x.to_string(),
        ([x, y, z], _) => format!("({x}, {y}, {z})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Kind;

    /// A kernel that stores `fma(x, x, 1/x)` of a float made from the thread's number, with a branch and a guard on the way.
    const PTX: &str = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n\
        .reg .pred %p<3>;\n.reg .b32 %r<4>;\n.reg .f32 %f<5>;\n.reg .b64 %d<4>;\n\
        mov.u32 %r1, %tid.x;\nmad.lo.u32 %r2, %r1, 2654435761, 12345;\ncvt.rn.f32.s32 %f1, %r2;\nrcp.rn.f32 %f2, %f1;\n\
        setp.lt.s32 %p1, %r2, 0;\n@%p1 bra $end;\nfma.rn.f32 %f2, %f1, %f1, %f2;\n@!%p1 add.rn.f32 %f2, %f2, 0f3F800000;\n\
        $end:\nld.param.u64 %d1, [out];\nmul.wide.u32 %d2, %r1, 4;\nadd.s64 %d1, %d1, %d2;\nst.global.f32 [%d1], %f2;\nret;\n}\n";

    #[test]
    fn processors_without_avx2_compute_the_same() {
        let mut module = crate::ptx::parse(PTX, 80).unwrap();
        let kernel = Arc::new(module.kernels.remove(0));
        let results = [true, false].map(|fast| {
            let mut memory = Memory::new(0);
            let out = memory.allocate(400, Kind::Global).unwrap();
            let params = out.to_le_bytes().to_vec();
            let launch = Launch { kernel: Arc::clone(&kernel), grid: [1; 3], block: [100, 1, 1], params };
            let (mut traffic, mut watch) = (Traffic::default(), Watch::default());
            if fast {
                run(&launch, &mut memory, &mut traffic, &mut watch).unwrap();
            } else {
                let machine = Machine::new(&launch, &mut memory, &mut traffic, &mut watch);
                let machine = Machine { has_avx2: false, ..machine };
                run_grid::<false>(machine).unwrap();
            }
            let mut bytes = [0; 400];
            memory.read(out, &mut bytes).unwrap();
            (bytes, traffic.instructions)
        });
        assert_eq!(results[0], results[1]);
    }
}
