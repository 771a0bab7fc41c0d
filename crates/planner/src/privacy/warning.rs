//! What is allowed and yet hardly what anyone means.

/// Says so where δ is 1/`dataset_size` or more: a mechanism that publishes one unit at random has such a δ, at ε = 0.
pub fn large_delta(delta: f64, dataset_size: u64) -> Option<String> {
    let limit = 1.0 / dataset_size as f64;
    (delta >= limit).then(|| {
        format!(
            "delta is {delta:e} for a dataset of {dataset_size}: expected well below 1/{dataset_size}, since a mechanism that publishes one unit at random satisfies a claim with this delta"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::large_delta;

    #[test]
    fn a_delta_of_one_over_the_size_or_more_is_named() {
        assert_eq!(large_delta(1e-6, 999_999), None);
        assert_eq!(large_delta(0.0009, 1000), None);
        for (value, size) in [(1e-6, 1_000_000), (1e-6, u64::MAX), (0.5, 2), (0.999, 2), (0.001, 1000)] {
            let text = large_delta(value, size).unwrap();
            assert!(text.contains(&format!("delta is {value:e} for a dataset of {size}")), "{text}");
            assert!(text.contains(&format!("expected well below 1/{size}")), "{text}");
        }
    }
}
