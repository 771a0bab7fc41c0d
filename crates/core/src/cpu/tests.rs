//! The memory that the engine holds, against what a form predicts.

use super::*;
use crate::form::{Kernel, Regenerate, Term};
use crate::{Key, Mechanism};

/// The state that a form predicts for this engine is what the engine holds, whatever the form, the size and the options.
#[test]
fn a_form_knows_what_its_engine_holds() {
    let steps = 12_usize;
    let ring = |bands: usize| Form::banded_toeplitz(&vec![1.0; bands]).unwrap();
    let rows = |bands: usize| (0..steps).map(|t| vec![1.0; bands.min(t + 1)]).collect::<Vec<_>>();
    let mut forms: Vec<Form> = (1..=70).map(ring).collect();
    forms.extend([1, 8, 9, 12].map(|bands| Form::banded(&rows(bands)).unwrap()));
    forms.extend([ring(8).with_restarts(5).unwrap(), ring(9).with_restarts(5).unwrap()]);
    forms.extend((0..=8).map(|d| Form::blt(&vec![0.1; d], &vec![0.5; d]).unwrap()));
    forms.extend([1, 9, 20].map(|bands| Form::regenerate(&vec![0.5; bands]).unwrap()));
    forms.push(Kernel::Regenerate(Regenerate::varying(&rows(12)).unwrap()).into());
    let node = |t: usize| vec![Term { family: Family::TreeNode, index: t as u64, weight: 1.0 }];
    forms.push(
        Kernel::Regenerate(Regenerate::listed(&(0..steps).map(node).collect::<Vec<_>>()).unwrap()).into(),
    );
    for form in forms {
        let plan = Plan::new(steps as u64, form, 1.0).unwrap();
        for (dim, compact) in [1, 7, 511, 512, 8193, 20_001].into_iter().flat_map(|d| [(d, false), (d, true)])
        {
            let options = CpuOptions { threads: 1, compact, ..CpuOptions::default() };
            let shard = Shard::whole(dim).unwrap();
            let key = Key::from_bytes([1; 32], "memory");
            let held = Mechanism::cpu_with(&plan, key, shard, options).unwrap().state_bytes();
            let said = match compact {
                false => plan.form().engine_bytes_per_param(),
                true => plan.form().state_bytes_per_param(),
            };
            assert_eq!(held, dim * said, "{:?}, {dim} coordinates", plan.form());
        }
    }
}
