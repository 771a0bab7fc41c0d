//! Race detection for kernels with barriers, which order some of the accesses that [`shadow`](super::shadow) takes for races.
//!
//! A cell stands for two bytes and remembers its last write, its reads and its atomic updates, each as a [`Mark`]. Pages are
//! never cleared: the marks of earlier launches have earlier epochs.

use super::order::{Access, Mark, Order};

/// Bytes per page; cells are made when a kernel first touches a page.
const PAGE: usize = 4096;

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Mark,
    read: Mark,
    atomic: Mark,
}

/// The cells of one allocation.
pub(crate) struct Barriers {
    pages: Vec<Option<Box<[Cell]>>>,
}

/// What a thread does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Read,
    /// A read that promises that nobody writes there during the launch (`ld.global.nc`).
    ReadConstant,
    Write,
    Atomic,
}

/// The access that an access raced with: who, what, and the instruction.
pub(crate) struct Clash {
    pub who: String,
    pub verb: &'static str,
    pub pc: usize,
}

impl Barriers {
    pub(super) fn new(len: usize) -> Self {
        Self { pages: (0..len.div_ceil(PAGE)).map(|_| None).collect() }
    }

    /// Records an aligned access of `CELLS` cells, unless it races.
    pub(super) fn touch<const CELLS: usize>(
        &mut self,
        order: &Order,
        access: Access,
        at: usize,
        deed: Deed,
    ) -> Result<(), Clash> {
        let page = self.pages[at / PAGE].get_or_insert_with(|| vec![Cell::default(); PAGE / 2].into());
        let first = at % PAGE / 2;
        for cell in &mut page[first..first + CELLS] {
            check(cell, order, access, deed)?;
            let mark = match deed {
                Deed::Read | Deed::ReadConstant => &mut cell.read,
                Deed::Write => &mut cell.write,
                Deed::Atomic => &mut cell.atomic,
            };
            *mark = order.marked(*mark, access);
            mark.constant |= deed == Deed::ReadConstant;
        }
        Ok(())
    }
}

fn check(cell: &Cell, order: &Order, access: Access, deed: Deed) -> Result<(), Clash> {
    let reads = matches!(deed, Deed::Read | Deed::ReadConstant);
    for (mark, verb, concerns) in [
        (&cell.write, "writes", true),
        (&cell.read, "reads", !reads),
        (&cell.atomic, "atomically updates", deed != Deed::Atomic),
    ] {
        // A read that promised that nobody writes, and a write by whomever, race in whatever order.
        let broken = order.in_launch(mark) && (mark.constant || deed == Deed::ReadConstant);
        let who = match concerns {
            true if broken => Some("a thread, by ld.global.nc or before it,".to_string()),
            true => order.unordered(mark, access.lane),
            false => None,
        };
        if let Some(who) = who {
            return Err(Clash { who, verb, pc: mark.pc as usize });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script of `r`ead, `n`on-coherent read, `w`rite and `a`tomic by lanes of warp 0, each with its lane; `W` goes on to
    /// the next warp, `F` back to the first, `|` is a barrier of the block, `:` of the warp, `B` begins the next block.
    fn run(script: &str) -> bool {
        let mut shadow = Barriers::new(PAGE);
        let mut order = Order::new(3, 5);
        order.enter_block();
        let mut warp = 0;
        for step in script.split(' ') {
            match step {
                "|" => order.barrier(),
                ":" => order.warp_barrier(u32::MAX),
                "B" => order.enter_block(),
                "F" => warp = 0,
                "W" => warp += 1,
                _ => {
                    let deed = match &step[..1] {
                        "r" => Deed::Read,
                        "n" => Deed::ReadConstant,
                        "w" => Deed::Write,
                        _ => Deed::Atomic,
                    };
                    let access = Access { lane: step[1..].parse().unwrap(), pc: 0 };
                    if shadow.touch::<2>(&order, access, 8, deed).is_err() {
                        return false;
                    }
                }
            }
            order.enter_warp(warp, 0);
        }
        true
    }

    #[test]
    fn ordered_accesses_are_no_race() {
        for script in [
            "r1 w1 r1 w1",
            "r1 r2 | w1 | r2 r3",
            "w1 : w2 : r3 r4",
            "r0 r1 W r1 | w3",
            "a1 a2 W a1 B a1",
            "a1 | w2 | a1",
            "n1 n2 B n1 r2",
            "r1 B r1 B r2",
            "w1 W | r1 F r2 | w5",
        ] {
            assert!(run(script), "{script}");
        }
    }

    #[test]
    fn all_others_are() {
        for script in [
            "w1 w2",
            "w1 r2",
            "r1 w2",
            "r1 r2 w1",
            "a1 r2",
            "r2 a1",
            "a1 w2",
            "w2 a1",
            "n1 w1",
            "w1 n1",
            "n1 | w1",
            "w1 | n1",
            "w1 W : r1",
            "r1 W : w1",
            "w1 B r1",
            "w1 B w1",
            "r1 B w1",
            "r1 B r1 | w1",
            "r1 r2 W r1 w1",
            "w1 | B r1",
            "a1 B r1",
            "r1 W r1 F : w1",
        ] {
            assert!(!run(script), "{script}");
        }
    }
}
