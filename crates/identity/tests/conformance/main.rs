//! The tests of every provider, as one set. A cloud gets all of them by one fixture in `clouds/`; what only one cloud
//! can do is tested apart, in the folder of that name. `docs/adding-a-provider.md` says how.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

#[path = "../shared/ask.rs"]
mod ask;
mod bench;
mod cloud;
mod clouds;
mod rows;

/// One test for each row, against this fixture.
macro_rules! each {
    ($fixture:ty: $($file:ident::$row:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $row() {
                crate::rows::$file::$row::<$fixture>().await;
            }
        )+
    };
}

/// The rows for a cloud that has no faults to order: what its instances are.
macro_rules! identity_rows {
    ($fixture:ty) => {
        each!($fixture:
            identity::an_instance_of_ours,
            identity::each_refusal,
            identity::several_claims_of_one_instance,
        );
    };
}

/// All rows.
macro_rules! all_rows {
    ($fixture:ty) => {
        identity_rows!($fixture);
        each!($fixture:
            unchecked::nothing_unchecked_is_sent,
            cost::a_thousand_cost_what_the_provider_says,
            cost::a_cold_start_asks_at_once_and_joins_the_rest,
            cost::an_answer_expires_and_is_asked_for_again_with_the_others,
            poison::one_unknown_among_five_hundred,
            poison::one_that_makes_the_cloud_fail,
            throttling::everybody_slows_down_together,
            zones::a_zone_in_trouble_leaves_the_others_alone,
            zones::a_zone_that_never_answers_holds_up_nobody,
            trouble::what_keeps_the_cloud_from_answering,
            trouble::away_and_back,
            cancellation::a_query_that_is_dropped_leaves_nothing_behind,
            cancellation::who_goes_away_is_not_asked_for,
        );
    };
}

mod aws {
    all_rows!(crate::clouds::aws::Aws);
}

mod aws_as_others_wrote_it {
    identity_rows!(crate::clouds::moto::Aws);
}

mod gce {
    all_rows!(crate::clouds::gce::Gce);
}

mod hetzner {
    all_rows!(crate::clouds::hetzner::Hetzner);
}
