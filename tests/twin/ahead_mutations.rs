//! Mistakes made on purpose in the sources of rows ahead: each must show.

use super::Onto;
use super::ahead::{Case, Pair, add_module, compare_ahead};
use super::ahead_cases::{forms, within};
use super::module::{Mutation, compiler, one_of};
use corrnoise::{Isa, Plan};

/// The name of a mistake, a text of the source, and what it becomes.
type Mistake = (&'static str, &'static str, &'static str);

const IN_RING: &[Mistake] = &[
    ("a count off by one", "? words[threadIdx.x] : 0", "? words[threadIdx.x] - (words[threadIdx.x] > 0) : 0"),
    ("an age too few for a row", "if (age + k <= shared.counts[k])", "if (age + k < shared.counts[k])"),
    ("a row of the turn too few", "k - j <= shared.counts[k]", "k - j < shared.counts[k]"),
    ("predicates in no row of the turn", "if (steady || k - j <= shared.counts[k])", "if (true)"),
    ("a steady turn that is none", "shared.counts[k] == h", "shared.counts[k] + 1 >= h"),
    ("no predicates", "max(low, common)", "max(low, oldest)"),
    ("a common age too many", "common = min(common, count)", "common = min(common, count + 1)"),
    ("a wrong row name", "turn.row + k", "turn.row + 2 * k"),
    ("a row that no warp samples", "k += WARPS_PER_BLOCK", "k += WARPS_PER_BLOCK + 1"),
    ("a wrong slot step", "at += stride;", "at += stride - 4;"),
    ("a missing wrap", "if (age == head) at -= all;", ""),
    ("a wrap one row late", "turn.head + j + 1 == args.num_slots", "turn.head + j == args.num_slots"),
    (
        "a missing store",
        "if (steady || j < turn.rows) store_quad(row, y[j]);",
        "if (j) store_quad(row, y[j]);",
    ),
    ("a store past the turn", "if (steady || j < turn.rows) store", "store"),
    (
        "a missing barrier",
        "share(args, turn, h, shared);\n    __syncthreads();",
        "share(args, turn, h, shared);",
    ),
    ("a missing barrier before the next ages", "__syncthreads();\n        share_ages", "share_ages"),
    (
        "a missing barrier after the next ages",
        "low, high, shared);\n        __syncthreads();",
        "low, high, shared);",
    ),
    ("the wrong ages", "(const Quad32 *)(table + low)", "(const Quad32 *)(table + low + 1)"),
    ("the triangle of another age", "shared.old[h - low - 1 - i]", "shared.old[h - low - 1]"),
];

const IN_TURNS_OF_RINGS: &[Mistake] = &[
    ("a turn without a mark", "turn.due = (u32)time + turn.rows", "turn.due = (u32)time"),
    ("a turn too long at time 0", "turn.rows = K - (u32)(index * K / args.num_tiles);", "turn.rows = K;"),
    ("phases that round down", "args.num_tiles + K - 1, K)", "args.num_tiles, K)"),
];

const IN_TURNS_OF_BLTS: &[Mistake] = &[
    ("a turn that runs again", "|| args.due[turn.tile] != (u32)time", ""),
    ("a missing warp barrier", "__syncwarp();", ""),
];

const IN_BLT: &[Mistake] = &[
    ("a fresh row that remembers", "if (!fresh) return;", "return;"),
    (
        "a mask off by one",
        "turn.list >> (args.rows_ahead - turn.before)",
        "turn.list >> (args.rows_ahead - turn.before + 1)",
    ),
    ("a row that is not folded", "u32 left = turn.before;", "u32 left = turn.before ? turn.before - 1 : 0;"),
    ("buffers that are not stored", "if (turn.before) {", "if (false) {"),
    (
        "a fold without its fma",
        "__fmaf_rn(args.decay[i / 16], m[i / 16][i % 16], z[i % 16])",
        "__fadd_rn(__fmul_rn(args.decay[i / 16], m[i / 16][i % 16]), z[i % 16])",
    ),
];

const IN_SUM: &[Mistake] = &[
    ("a term too few", "u32 left = *table;", "u32 left = *table - 1;"),
    ("a slot that does not wrap", "if (++slot == args.rows_ahead) slot = 0;", "++slot;"),
    ("another sum's weight", "weight.v[i / 16]", "weight.v[i / 32]"),
];

const IN_ADD: &[Mistake] = &[("the row of another step", "work.head *", "(work.head ? work.head - 1 : 0) *")];

/// Mistakes by the module that must show them and the file that they are in.
const MISTAKES: [(&str, &str, &[Mistake]); 6] = [
    ("make_ring8", "make_ring.cu", IN_RING),
    ("make_ring8", "turn.cuh", IN_TURNS_OF_RINGS),
    ("make_blt3", "turn.cuh", IN_TURNS_OF_BLTS),
    ("make_blt3", "make_blt.cu", IN_BLT),
    ("make_regenerate", "make_regenerate.cu", IN_SUM),
    ("make_blt3", "add.cu", IN_ADD),
];

#[test]
fn mutations_of_rows_ahead_are_noticed() {
    let Some(compiler) = compiler() else { return };
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
    for (name, file, mistakes) in MISTAKES {
        for (mistake, from, to) in mistakes.iter().step_by(one_of()) {
            let difference = difference(name, Some((file, from, to)));
            println!("{mistake}: {difference:?}");
            assert!(difference.is_some(), "{mistake} was not noticed");
        }
    }
}
