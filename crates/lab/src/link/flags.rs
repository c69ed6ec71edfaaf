//! The flags that describe a link, the same for every command that has one.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use clap::Args;

use super::spec::{Change, LinkSpec, SpecError, Traces};

/// Properties of a link as flags; [`LinkSpec::set`] has the same words.
#[derive(Debug, Clone, Args)]
pub struct LinkFlags {
    /// Capacity of each link in IP bits per second [default: 100mbit, or what --trace says].
    #[arg(long)]
    pub rate: Option<String>,
    /// One-way propagation delay of each link.
    #[arg(long, default_value = "10ms")]
    pub delay: String,
    /// Variation of the delay.
    #[arg(long)]
    pub jitter: Option<String>,
    /// Shape of the jitter: uniform (+-jitter), normal or pareto (standard deviation = jitter).
    #[arg(long)]
    pub jitter_dist: Option<String>,
    /// Let jitter reorder packets; otherwise a packet waits for the one before it.
    #[arg(long)]
    pub jitter_reorder: bool,
    /// Mean loss of each link, in both directions.
    #[arg(long)]
    pub loss: Option<String>,
    /// random | gilbert:10 (mean burst in packets) | gilbert:20ms (in time) | gemodel:P:R:1-H:1-K | markov4:P13:P31:P32:P23:P14 | ber:1e-6.
    #[arg(long)]
    pub loss_model: Option<String>,
    /// Loss after the bottleneck (limit C(1-p)) or before it (limit C).
    #[arg(long)]
    pub loss_at: Option<String>,
    /// Mean loss on the return path, if not the same.
    #[arg(long)]
    pub rev_loss: Option<String>,
    /// What differs on the return path: rate=10mbit,delay=20ms.
    #[arg(long, value_name = "KEY=VALUE,..")]
    pub rev: Option<String>,
    /// Limit of the queue: 1bdp, 1000p, 64KB, 50ms or none.
    #[arg(long)]
    pub queue: Option<String>,
    /// Largest IP packet of each link.
    #[arg(long)]
    pub mtu: Option<String>,
    /// Hold back a share of packets for up to a time: 1%:20ms.
    #[arg(long)]
    pub reorder: Option<String>,
    /// Share of packets that arrive twice.
    #[arg(long)]
    pub duplicate: Option<String>,
    /// Share of packets that arrive with flipped bits.
    #[arg(long)]
    pub corrupt: Option<String>,
    /// Queue that decides itself what to drop: fq_codel[:target=5ms][:interval=100ms][:flows=1024][:quantum=1500][:ecn],
    /// pie[:target=15ms][:update=15ms][:burst=150ms][:ecn] or none.
    #[arg(long)]
    pub aqm: Option<String>,
    /// Instead of a rate, a file with one opportunity to deliver an MTU per line, in ms, begun anew at its end (as mahimahi);
    /// on the return path too, unless --rev says otherwise: trace=none,rate=10mbit.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<String>,
    /// Mark packets that waited longer than this (ECN).
    #[arg(long)]
    pub ecn: Option<String>,
    /// Token bucket that delays: 20mbit:64KB.
    #[arg(long)]
    pub bucket: Option<String>,
    /// Token bucket that drops: 20mbit:64KB.
    #[arg(long)]
    pub policer: Option<String>,
    /// Nothing arrives, in both directions: 10s+5s (when, how long). May be given several times.
    #[arg(long, value_name = "AT+FOR")]
    pub outage: Vec<String>,
    /// Change every link in mid-run, in both directions: 10s:rate=20mbit.
    #[arg(long, value_name = "T:KEY=VALUE,..")]
    pub at: Vec<Change>,
}

impl LinkFlags {
    /// The link from the first end to the second, and the one back; `traces` says whether files of traces are read.
    ///
    /// # Errors
    /// A value that does not read. What contradicts itself, [`LinkSpec::check`] finds.
    pub fn both_directions(&self, traces: Traces) -> Result<(LinkSpec, LinkSpec), SpecError> {
        let mut spec = LinkSpec::default();
        let traced = self.trace.as_ref().is_some_and(|trace| trace != "none");
        let usual_rate = (!traced).then(|| "100mbit".to_owned());
        let given = [
            ("trace", self.trace.as_ref()),
            ("rate", self.rate.as_ref().or(usual_rate.as_ref())),
            ("delay", Some(&self.delay)),
            ("jitter", self.jitter.as_ref()),
            ("jitter-dist", self.jitter_dist.as_ref()),
            ("loss", self.loss.as_ref()),
            ("loss-model", self.loss_model.as_ref()),
            ("loss-at", self.loss_at.as_ref()),
            ("queue", self.queue.as_ref()),
            ("mtu", self.mtu.as_ref()),
            ("reorder", self.reorder.as_ref()),
            ("duplicate", self.duplicate.as_ref()),
            ("corrupt", self.corrupt.as_ref()),
            ("aqm", self.aqm.as_ref()),
            ("ecn", self.ecn.as_ref()),
            ("bucket", self.bucket.as_ref()),
            ("policer", self.policer.as_ref()),
        ];
        for (key, text) in given {
            if let Some(text) = text {
                spec.set_with(key, text, traces)?;
            }
        }
        for text in &self.outage {
            spec.set("outage", text)?;
        }
        spec.jitter_reorder = self.jitter_reorder;
        spec.at = self.at.clone();
        let mut reverse = spec.clone();
        if let Some(loss) = &self.rev_loss {
            reverse.set("loss", loss)?;
        }
        if let Some(list) = &self.rev {
            reverse.set_list_with(list, traces)?;
        }
        Ok((spec, reverse))
    }
}
