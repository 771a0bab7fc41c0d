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
    let error = Plan::from_json(&text.replace("\"corrnoise_plan\": 1", "\"corrnoise_plan\": 9")).unwrap_err();
    assert!(error.to_string().contains("version 9"));
    assert!(Plan::from_json(&text[..text.len() / 2]).is_err());
}

#[test]
fn a_ring_that_rounds_its_outputs_is_refused() {
    let text = plan().to_json();
    for value in ["\"bf16\"", "\"f16\"", "null", "4", "[1]"] {
        let changed = text.replace("\"history\": \"f32\"", &format!("\"history\": {value}"));
        assert_ne!(changed, text);
        let error = Plan::from_json(&changed).unwrap_err().to_string();
        let expected = format!("history of a ring is {value}: expected \"f32\"");
        assert!(error.contains(&expected) && !error.contains('\n'), "{error}");
    }
    // No other form has the word.
    for form in [Form::regenerate(&[1.0, -0.5]).unwrap(), Form::blt(&[0.2], &[0.5]).unwrap()] {
        let other = Plan::new(20, form, 0.1).unwrap().to_json();
        let changed = other.replace("\"kind\"", "\"history\": \"f32\", \"kind\"");
        let error = Plan::from_json(&changed).unwrap_err().to_string();
        assert!(error.contains("unknown field `history`") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn bad_numbers_are_named() {
    let make = |n, stddev| Plan::new(n, Form::independent(), stddev).unwrap_err().to_string();
    assert!(make(0, 1.0).contains("num_steps is 0"));
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
        "4f17bfc042c1c361c484144ddca2c7b58493ec6bfb2a48d977cd9c38d6da5272"
    );
}
