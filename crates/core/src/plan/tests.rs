use super::*;

fn plan() -> Plan {
    Plan::new(20, Form::banded_toeplitz(&[2.0, 1.0, 0.3]).unwrap(), 0.1).unwrap()
}

#[test]
fn json_round_trip_keeps_every_bit() {
    assert_eq!(Plan::from_json(&plan().to_json()).unwrap(), plan());
}

#[test]
fn sampling_and_certificate_are_kept_and_named() {
    let sampling = Sampling::BlockPoisson { dataset_size: 1000, num_blocks: 7, sampling_prob: 0.1 };
    let certificate =
        serde_json::from_str(r#"{"clip_norm": 0.1, "claim": {"epsilon": 1e-300, "noise_multiplier": 0.5, "gdp_mu": 2, "sensitivity": 2}}"#).unwrap();
    let full = plan().with_sampling(sampling).unwrap().with_certificate(certificate).unwrap();
    assert_eq!(Plan::from_json(&full.to_json()).unwrap(), full);
    assert_ne!(full.fingerprint(), plan().fingerprint());
    let error = Plan::from_json(&full.to_json().replace("1e-300", "1e-299")).unwrap_err().to_string();
    assert!(error.contains("edited or damaged"), "{error}");
    #[cfg(unix)]
    assert!(full.save("/dev/null").unwrap_err().to_string().contains("not a file"));
    let bad = Sampling::Cyclic { dataset_size: 5, num_batches: 6 };
    assert!(plan().with_sampling(bad).unwrap_err().to_string().contains("number of batches is 6"));
}

#[test]
fn a_file_of_any_size_is_read_in_little_memory() {
    let text = format!("[{}]", "0,".repeat(MOST_VALUES));
    let error = Plan::from_json(&text).unwrap_err().to_string();
    assert!(error.contains("8000001 values: expected at most 8000000"), "{error}");
    let folder = std::env::temp_dir().join(format!("corrnoise-plan-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("sparse.json");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = Plan::load(&path).unwrap_err().to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(error.contains("1099511627776 bytes: expected at most 200000000"), "{error}");
    // A device without an end has no length that would tell.
    #[cfg(unix)]
    {
        let error = Plan::load("/dev/zero").unwrap_err().to_string();
        assert!(error.contains("more than 200000000 bytes"), "{error}");
    }
}

#[test]
fn an_edited_plan_is_refused() {
    let text = plan().to_json();
    for (from, to) in
        [("\"stddev\": 0.1", "\"stddev\": 0.2"), ("\"rounds\": 12", "\"rounds\": 8"), ("0.5", "0.25")]
    {
        assert!(text.contains(from), "{text}");
        let error = Plan::from_json(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains("edited or damaged"), "{error}");
    }
    let error = Plan::from_json(&text.replace("\"rounds\": 12", "\"rounds\": 13")).unwrap_err().to_string();
    assert!(error.contains("13") && error.contains("8, 12 or 20"), "{error}");
    let error = Plan::from_json(&text.replace("\"corrnoise_plan\": 2", "\"corrnoise_plan\": 9")).unwrap_err();
    assert!(error.to_string().contains("version 9"));
    assert!(Plan::from_json(&text[..text.len() / 2]).is_err());
}

/// An entry that no version 2 has, such as the number type of a ring's history, is refused in every form.
#[test]
fn a_ring_that_rounds_its_outputs_is_refused() {
    let ring = Form::banded_toeplitz(&[1.0, 0.5]).unwrap();
    for form in [ring, Form::regenerate(&[1.0, -0.5]).unwrap(), Form::blt(&[0.2], &[0.5]).unwrap()] {
        let other = Plan::new(20, form, 0.1).unwrap().to_json();
        for value in ["\"f32\"", "\"bf16\"", "null"] {
            let changed = other.replace("\"kind\"", &format!("\"history\": {value}, \"kind\""));
            assert_ne!(changed, other);
            let error = Plan::from_json(&changed).unwrap_err().to_string();
            assert!(error.contains("unknown field `history`") && !error.contains('\n'), "{error}");
        }
    }
}

/// A plan file of version 1 is refused in one line, whatever its other entries are.
#[test]
fn a_plan_of_version_1_is_refused() {
    let refused = "plan refused: it was made by version 1, and this library implements version 2: make it again \
                   with `corrnoise plan`";
    let old = r#"{"corrnoise_plan": 1, "fingerprint": "0000", "plan": {"noise_spec": 1, "num_steps": 20, "rounds": 12, "stddev": 0.1, "form": {"kernel": {"kind": "ring", "toeplitz": [0.5], "history": "f32"}}}}"#;
    assert_eq!(Plan::from_json(old).unwrap_err().to_string(), refused);
    let renamed = plan().to_json().replace("\"corrnoise_plan\": 2", "\"corrnoise_plan\": 1");
    assert_eq!(Plan::from_json(&renamed).unwrap_err().to_string(), refused);
    let text = plan().to_json().replace("\"noise_spec\": 2", "\"noise_spec\": 1");
    let error = Plan::from_json(&text).unwrap_err().to_string();
    assert!(
        error.contains("noise specification has version 1") && error.contains("make it again"),
        "{error}"
    );
}

/// A grid that the noise does not ask for is refused, although the fingerprint is that of the content.
#[test]
fn the_grid_is_that_of_the_noise() {
    let with = |grid_exponent| {
        let other = Body { grid_exponent, ..plan().body };
        Plan::from_json(&other.seal().unwrap().to_json())
    };
    // A row's scale is 0.1/2, between 2⁻⁵ and 2⁻⁴.
    assert_eq!(plan().grid_exponent(), -11);
    for exponent in -17..=-7 {
        assert_eq!(with(exponent).unwrap().grid_exponent(), exponent, "a plan may state another grid");
    }
    assert_eq!(plan().with_finest_grid().unwrap(), with(-17).unwrap());
    for exponent in [-18, -6] {
        let error = with(exponent).unwrap_err().to_string();
        let expected =
            format!("grid_exponent is {exponent}: expected -17 to -7, which the noise's scale asks for");
        assert!(error.contains(&expected), "{error}");
    }
}

/// What rounding adds to the variance of a prefix sum over all steps stays below a 200th of the smallest row's own variance, and a grid
/// that is twice as coarse would exceed that.
#[test]
fn a_new_grid_is_as_coarse_as_its_steps_allow() {
    let exponent = |steps, stddev| Plan::new(steps, Form::independent(), stddev).unwrap().grid_exponent();
    let last = [(240, 6), (963, 7), (3855, 8), (15_420, 9), (61_680, 10), (246_723, 11), (986_895, 12)];
    for (steps, finer) in last {
        assert_eq!(exponent(steps, 1.0), -finer, "{steps} steps");
        assert_eq!(exponent(steps + 1, 1.0), -(finer + 1).min(12), "{steps} steps and one");
        // Γ is largest, compared with the scale, where that is a power of two.
        let added = |exponent: i32| steps as f64 * 4.0_f64.powi(exponent) / 12.0;
        assert!(added(exponent(steps, 1.0)) <= 1.0 / 200.0, "{steps} steps");
        assert!(added(exponent(steps + 1, 1.0) + 1) > 1.0 / 205.0, "{steps} steps and one");
    }
    assert_eq!([1, Row::INDEX_LIMIT].map(|steps| exponent(steps, 1.0)), [-6, -12]);
    // ⌊log₂⌋: a scale just below a power of two has the grid of the power before.
    assert_eq!([0.5, 0.999, 1.0, 1.999, 2.0].map(|stddev| exponent(1000, stddev)), [-9, -9, -8, -8, -7]);
    // At the end of the range the grid is finer than the steps ask for.
    assert_eq!([101, 102, 103].map(|power| exponent(1, 2.0_f64.powi(power))), [95, 96, 96]);
}

#[test]
fn bad_numbers_are_named() {
    let make = |n, stddev| Plan::new(n, Form::independent(), stddev).unwrap_err().to_string();
    assert!(make(0, 1.0).contains("steps is 0"));
    assert!(make((1 << 40) + 1, 1.0).contains("1099511627777"));
    assert!(make(1, -1.0).contains("stddev is -1"));
    assert!(make(1, f64::NAN).contains("stddev is NaN"));
    assert!(make(1, 1e300).contains("range of normal f32"));
    assert!(make(1, 1e-300).contains("range of normal f32"));
    assert!(make(1, 0.0).contains("stddev is 0: expected finite and above 0"), "no noise is no plan");
    let scaled = Form::independent().with_output_scale(vec![1.0, 2.0, 3.0]).unwrap();
    let error = Plan::new(4, scaled, 1.0).unwrap_err().to_string();
    assert!(error.contains("output scale has length 3: expected the plan's 4 steps"), "{error}");
}

#[test]
fn the_fingerprint_is_pinned() {
    // Keys and checkpoints are bound to it: a change here breaks every stored run.
    assert_eq!(
        plan().fingerprint().to_string(),
        "650effe93b8abd40507c82cf30176f98de5e3cf4e6176e1ed896548c3d80d2ea"
    );
}

/// A grid that suits the largest row and drowns the smallest, or the other way round, is refused.
#[test]
fn rows_of_very_different_size_are_refused() {
    let scaled = |scales: Vec<f64>| {
        Form::independent().with_output_scale(scales).and_then(|form| Plan::new(2, form, 1.0))
    };
    assert_eq!(scaled(vec![1.0, 1.0]).unwrap().grid_exponent(), -6);
    assert_eq!(scaled(vec![1.0, 0.5]).unwrap().grid_exponent(), -7);
    assert_eq!(scaled(vec![1.0, 1.0 / 512.0]).unwrap().grid_exponent(), -15);
    assert_eq!(scaled(vec![1.0, 1.0 / 1024.0]).unwrap().grid_exponent(), -15, "the largest row decides");
    assert_eq!(scaled(vec![1.0, 1.0 / 8192.0]).unwrap().grid_exponent(), -15);
    let error = scaled(vec![1.0, 1.0 / 16384.0]).unwrap_err().to_string();
    assert!(error.contains("less than a factor of 8192"), "{error}");
    assert!(scaled(vec![1.0, 2.0_f64.powi(-40)]).is_err());
    // Noise that grows with the steps asks for a coarser grid, and at some point for none.
    let growing = |steps| Plan::new(steps, Form::banded_toeplitz(&[1.0, 1.0]).unwrap(), 1.0);
    assert_eq!([1, 240, 1 << 12].map(|steps| growing(steps).unwrap().grid_exponent()), [-6, -6, -9]);
    assert_eq!(growing(1 << 14).unwrap().grid_exponent(), -8, "the largest row decides");
    assert!(growing(1 << 30).is_err());
}

/// Noise that a step does not share with earlier ones decides how fine the grid is: weights that cancel, or that a restart cuts off, do
/// not count.
#[test]
fn a_row_is_as_large_as_its_own_noise() {
    use crate::form::{Kernel, Regenerate, Term};
    use crate::row::Family;
    let varying = |rows: &[Vec<f64>]| Form::from(Kernel::Regenerate(Regenerate::varying(rows).unwrap()));
    let small = 2.0_f64.powi(-37);
    let hidden = varying(&[vec![1.0], vec![small, 1.0]]);
    assert!(Plan::new(2, hidden.clone(), 1.0).is_err());
    assert!(Plan::new(2, hidden.with_restarts(1).unwrap(), 1.0).is_err());
    assert!(Plan::new(2, varying(&[vec![1.0], vec![0.01, 1.0]]), 1.0).is_ok());
    let term = |family, index, weight| Term { family, index, weight };
    let twice = vec![vec![term(Family::Step, 0, 1.0), term(Family::Step, 0, -1.0)]];
    let error = Regenerate::listed(&twice).unwrap_err().to_string();
    assert!(error.contains("row 0 is named twice"), "{error}");
    for family in [Family::Dither, Family::Sampler] {
        let error = Regenerate::listed(&[vec![term(family, 0, 1.0)]]).unwrap_err().to_string();
        assert!(error.contains("step or tree_node"), "{error}");
    }
    let error =
        Plan::new(10, Form::banded(&[vec![1.0], vec![1.0, 0.5]]).unwrap(), 1.0).unwrap_err().to_string();
    assert!(error.contains("10 steps"), "{error}");
}

/// A grid at the end of the range may be coarser than the noise asks for, but not beyond that end.
#[test]
fn a_grid_beyond_the_range_is_refused() {
    let large = Plan::new(1, Form::independent(), 2.0_f64.powi(108)).unwrap();
    assert_eq!(large.grid_exponent(), 96);
    let mut other = large.body;
    other.grid_exponent = 97;
    let error = Plan::from_json(&other.seal().unwrap().to_json()).unwrap_err().to_string();
    assert!(error.contains("grid_exponent is 97: expected 96 to 96"), "{error}");
}
