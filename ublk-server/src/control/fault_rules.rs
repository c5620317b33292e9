//! Rules of faults as people and programs write them, and what is told of them.

use crate::units::{parse_duration, parse_size};
use emulation::fault::{FaultAction, FaultError, FaultOp, FaultPick, FaultRule, RuleState};
use emulation::zone::ZoneFailure;
use emulation::{BlkStatus, Bytes, Keep, Limits, RequestId, Sector, SectorRange};
use serde::{Deserialize, Serialize};

/// The longest name of a rule.
const NAME_MAX: usize = 32;

/// A rule: a body of `POST /v1/disks/ID/faults`, and a `[[fault]]` of a file for `ublk add --config`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// Its name; `None`: the next free `faultN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The requests it is about, by the name of [`FaultOp`]; `None`: all that the action can strike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// Those that touch these bytes, `FIRST+LENGTH`; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// Those from the one with this number on, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// Those that chance chooses, such as `1/100`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<String>,
    /// The most that are struck. `None`: no limit; one for `power-cut`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Where chance begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// What they meet.
    pub action: String,
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not `KEY=VALUE` with a known key.
    #[error("{0}: not KEY=VALUE; the keys are op, range, nth, ratio, count, seed, action and name")]
    Word(String),
    /// A key that is there twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// No action.
    #[error("no action=")]
    NoAction,
    /// A value that is none of its key.
    #[error("{0}={1}: {2}")]
    Value(&'static str, String, String),
    /// Two ways to choose.
    #[error("nth and ratio: one of them")]
    Picks,
    /// It cannot be on this disk.
    #[error(transparent)]
    Rule(#[from] FaultError),
}

impl FaultSpec {
    /// Reads `KEY=VALUE` words.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn parse(words: &[String]) -> Result<Self, SpecError> {
        let mut spec = Self {
            name: None,
            op: None,
            range: None,
            nth: None,
            ratio: None,
            count: None,
            seed: None,
            action: String::new(),
        };
        let mut seen: Vec<&str> = Vec::new();
        for word in words {
            let bad = || SpecError::Word(word.clone());
            let (key, value) = word.split_once('=').ok_or_else(bad)?;
            if seen.contains(&key) {
                return Err(SpecError::Twice(key.to_string()));
            }
            seen.push(key);
            let text = Some(value.to_string());
            match key {
                "name" => spec.name = text,
                "op" => spec.op = text,
                "range" => spec.range = text,
                "ratio" => spec.ratio = text,
                "action" => spec.action = value.to_string(),
                "nth" => spec.nth = Some(number("nth", value)?),
                "count" => spec.count = Some(number("count", value)?),
                "seed" => spec.seed = Some(number("seed", value)?),
                _ => return Err(bad()),
            }
        }
        if spec.action.is_empty() { Err(SpecError::NoAction) } else { Ok(spec) }
    }

    /// The rule that it describes, whatever the disk. `name`: the one it has without a name of its own.
    ///
    /// # Errors
    /// The first value that is wrong.
    pub fn rule(&self, name: &str) -> Result<FaultRule, SpecError> {
        let name = self.name.as_deref().unwrap_or(name);
        let letters = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(letters) {
            let why = format!("1 to {NAME_MAX} letters, digits, \"-\", \"_\" or \".\"");
            return Err(SpecError::Value("name", name.to_string(), why));
        }
        let action = action(&self.action)?;
        let pick = match (self.nth, &self.ratio) {
            (Some(_), Some(_)) => return Err(SpecError::Picks),
            (Some(nth), None) => FaultPick::From(nth),
            (None, Some(text)) => ratio(text)?,
            (None, None) => FaultPick::From(1),
        };
        // The power of a disk that fails at every write would never be back.
        let once = matches!(action, FaultAction::PowerCut(_)).then_some(1);
        Ok(FaultRule {
            name: name.to_string(),
            op: self.op.as_deref().map_or(Ok(FaultOp::Any), op)?,
            range: self.range.as_deref().map(range).transpose()?,
            pick,
            count: self.count.or(once),
            seed: self.seed.unwrap_or(0),
            action,
        })
    }

    /// The rule on a disk of these limits.
    ///
    /// # Errors
    /// It is no rule, or could never strike there.
    pub fn checked(&self, name: &str, limits: &Limits) -> Result<FaultRule, SpecError> {
        let rule = self.rule(name)?;
        rule.validate(limits)?;
        Ok(rule)
    }
}

impl From<&FaultRule> for FaultSpec {
    fn from(rule: &FaultRule) -> Self {
        let (nth, ratio) = match rule.pick {
            FaultPick::From(1) => (None, None),
            FaultPick::From(nth) => (Some(nth), None),
            FaultPick::Ratio(part, of) => (None, Some(format!("{part}/{of}"))),
        };
        Self {
            name: Some(rule.name.clone()),
            op: Some(rule.op.name().to_string()),
            range: rule.range.map(|range| format!("{}+{}", range.start.bytes().0, range.len.bytes().0)),
            nth,
            ratio,
            count: rule.count,
            seed: (rule.seed != 0).then_some(rule.seed),
            action: action_text(rule.action),
        }
    }
}

fn number(key: &'static str, text: &str) -> Result<u64, SpecError> {
    text.parse().map_err(|_| SpecError::Value(key, text.to_string(), "not a whole number".to_string()))
}

fn op(text: &str) -> Result<FaultOp, SpecError> {
    let known = || FaultOp::ALL.map(|(_, name)| name).join(", ");
    FaultOp::ALL
        .iter()
        .find(|(_, name)| *name == text)
        .map(|(op, _)| *op)
        .ok_or_else(|| SpecError::Value("op", text.to_string(), format!("must be one of {}", known())))
}

fn range(text: &str) -> Result<SectorRange, SpecError> {
    let bad = |why: &str| SpecError::Value("range", text.to_string(), why.to_string());
    let (start, len) = text.split_once('+').ok_or_else(|| bad("FIRST+LENGTH, in bytes"))?;
    let bytes = |part: &str| parse_size(part).map_err(|why| bad(&why));
    let (start, len): (Bytes, Bytes) = (bytes(start)?, bytes(len)?);
    if start.0.checked_add(len.0).is_none() {
        return Err(bad("beyond the end of any disk"));
    }
    let sectors = |bytes: Bytes| bytes.sectors().ok_or_else(|| bad("a multiple of 512 bytes"));
    Ok(SectorRange { start: Sector(sectors(start)?.0), len: sectors(len)? })
}

fn ratio(text: &str) -> Result<FaultPick, SpecError> {
    let bad = || SpecError::Value("ratio", text.to_string(), "two whole numbers, such as 1/100".to_string());
    let (part, of) = text.split_once('/').ok_or_else(bad)?;
    Ok(FaultPick::Ratio(part.parse().map_err(|_| bad())?, of.parse().map_err(|_| bad())?))
}

/// Reads what a power cut keeps: `none`, `all` or a seed.
///
/// # Errors
/// It is none of these.
pub fn parse_keep(text: &str) -> Result<Keep, String> {
    match text {
        "none" => Ok(Keep::None),
        "all" => Ok(Keep::All),
        seed => seed.parse().map(Keep::Some).map_err(|_| "must be none, all or a seed".to_string()),
    }
}

fn action(text: &str) -> Result<FaultAction, SpecError> {
    let bad = |why: String| SpecError::Value("action", text.to_string(), why);
    let (word, value) = text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value)));
    let needs = |what: &str| value.ok_or_else(|| bad(format!("{word}:{what}")));
    let alone = |action| match value {
        None => Ok(action),
        Some(_) => Err(bad(format!("{word} takes no value"))),
    };
    match word {
        "error" => {
            let name = needs("STATUS")?.to_ascii_uppercase().replace('-', "_");
            let status = BlkStatus::ALL.iter().find(|status| status.name() == name);
            let known = || BlkStatus::ALL.iter().map(|status| status.name()).collect::<Vec<_>>().join(", ");
            status.map(|status| FaultAction::Error(*status)).ok_or_else(|| bad(format!("one of {}", known())))
        }
        "delay" => Ok(FaultAction::Delay(parse_duration(needs("5ms")?).map_err(bad)?)),
        "hang" => alone(FaultAction::Hang),
        "fail-at" => {
            let index = needs("SEGMENT")?.parse();
            index.map(FaultAction::FailAt).map_err(|_| bad("the index of a segment, from 0".to_string()))
        }
        "stop-at" => Ok(FaultAction::StopAt(parse_size(needs("BYTES")?).map_err(bad)?)),
        "corrupt" => alone(FaultAction::Corrupt),
        "torn" => alone(FaultAction::Torn),
        "misdirect" => {
            let sector = needs("SECTOR")?.parse();
            sector
                .map(|sector| FaultAction::Misdirect(Sector(sector)))
                .map_err(|_| bad("a sector of 512 bytes, by its number".to_string()))
        }
        "lost-flush" => alone(FaultAction::LostFlush),
        "zone" => match needs("offline or zone:read-only")? {
            "offline" => Ok(FaultAction::Zone(ZoneFailure::Offline)),
            "read-only" => Ok(FaultAction::Zone(ZoneFailure::Readonly)),
            _ => Err(bad("zone:offline or zone:read-only".to_string())),
        },
        "power-cut" => match value {
            None => Ok(FaultAction::PowerCut(None)),
            Some(keep) => parse_keep(keep).map(|keep| FaultAction::PowerCut(Some(keep))).map_err(bad),
        },
        _ => Err(bad(
            "must be error:STATUS, delay:TIME, hang, fail-at:SEGMENT, stop-at:BYTES, corrupt, torn, \
                      misdirect:SECTOR, lost-flush, zone:offline, zone:read-only or power-cut"
                .to_string(),
        )),
    }
}

fn action_text(action: FaultAction) -> String {
    match action {
        FaultAction::Error(status) => format!("error:{}", status.name()),
        FaultAction::Delay(time) => format!("delay:{}us", time.0 / 1000),
        FaultAction::Hang => "hang".to_string(),
        FaultAction::FailAt(index) => format!("fail-at:{index}"),
        FaultAction::StopAt(bytes) => format!("stop-at:{}", bytes.0),
        FaultAction::Corrupt => "corrupt".to_string(),
        FaultAction::Torn => "torn".to_string(),
        FaultAction::Misdirect(sector) => format!("misdirect:{}", sector.0),
        FaultAction::LostFlush => "lost-flush".to_string(),
        FaultAction::Zone(ZoneFailure::Offline) => "zone:offline".to_string(),
        FaultAction::Zone(ZoneFailure::Readonly) => "zone:read-only".to_string(),
        FaultAction::PowerCut(None) => "power-cut".to_string(),
        FaultAction::PowerCut(Some(Keep::None)) => "power-cut:none".to_string(),
        FaultAction::PowerCut(Some(Keep::All)) => "power-cut:all".to_string(),
        FaultAction::PowerCut(Some(Keep::Some(seed))) => format!("power-cut:{seed}"),
    }
}

/// A rule, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultView {
    /// The rule, with its name.
    pub rule: FaultSpec,
    /// Requests that it was about, struck or not.
    pub matched: u64,
    /// Those that it struck.
    pub struck: u64,
    /// The numbers of the requests that hang by it.
    pub hung: Vec<u64>,
    /// The last that it struck, the oldest first.
    pub strikes: Vec<StrikeView>,
}

/// A request that was struck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrikeView {
    /// Its number.
    pub request: u64,
    /// What it asked for.
    pub op: String,
    /// Its first byte; of a copy that of its first destination.
    pub offset: Option<u64>,
    /// Its bytes; of a copy those of its first segment.
    pub length: Option<u64>,
    /// When it began, in nanoseconds since the pool was made.
    pub at_ns: u64,
}

impl FaultView {
    pub(crate) fn new(state: &RuleState, hung: &[RequestId]) -> Self {
        let strikes = state.strikes.iter().map(|strike| StrikeView {
            request: strike.request.0,
            op: strike.op.name().to_string(),
            offset: strike.range.map(|range| range.start.bytes().0),
            length: strike.range.map(|range| range.len.bytes().0),
            at_ns: strike.at.0,
        });
        Self {
            rule: FaultSpec::from(&state.rule),
            matched: state.matched,
            struck: state.struck,
            hung: hung.iter().map(|id| id.0).collect(),
            strikes: strikes.collect(),
        }
    }
}

/// A body of `POST /v1/disks/ID/power-cut`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerCutRequest {
    /// What is kept of the writes that no flush has made durable: `none`, `all` or a seed. None without it.
    pub keep: Option<String>,
    /// Although the disk is mounted or held exclusively.
    pub force: bool,
}

/// What a power cut did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerCutView {
    /// Answered bytes that were undone, in whole map blocks.
    pub undone_bytes: u64,
    /// Pages that stayed in the host's cache and may be stale.
    pub stale_pages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(text: &str) -> Result<FaultSpec, SpecError> {
        FaultSpec::parse(&text.split(' ').map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_rule_is_shown_as_it_is_written() {
        for text in [
            "op=copy range=0+1M nth=3 count=1 seed=7 action=error:MEDIUM name=N",
            "op=copy ratio=1/100 action=fail-at:2",
            "op=write action=delay:5ms",
            "action=hang",
            "action=stop-at:64K",
            "op=copy action=corrupt",
            "action=torn",
            "action=misdirect:8",
            "op=flush action=lost-flush",
            "action=zone:offline",
            "action=zone:read-only",
            "action=power-cut",
            "action=power-cut:none count=2",
            "action=power-cut:7",
            "action=error:zone-readonly",
        ] {
            let rule = spec(text).unwrap().rule("fault1").unwrap();
            let shown = FaultSpec::from(&rule);
            assert_eq!(shown.rule("other").unwrap(), rule, "{text}");
        }
        assert_eq!(spec("action=power-cut").unwrap().rule("a").unwrap().count, Some(1));
    }

    #[test]
    fn what_is_no_rule_is_refused_with_its_reason() {
        for text in [
            "",
            "op=copy",
            "action",
            "action=",
            "action=explode",
            "action=error",
            "action=error:NOPE",
            "action=delay",
            "action=delay:5",
            "action=hang:1",
            "action=fail-at:-1",
            "action=fail-at",
            "action=stop-at:x",
            "action=misdirect:x",
            "action=zone",
            "action=zone:full",
            "action=power-cut:x",
            "colour=red action=hang",
            "action=hang action=torn",
            "op=erase action=hang",
            "range=0 action=hang",
            "range=1+512 action=hang",
            "range=0+1 action=hang",
            "range=16777215T+16777215T action=hang",
            "nth=x action=hang",
            "nth=1 ratio=1/2 action=hang",
            "ratio=1 action=hang",
            "ratio=a/b action=hang",
            "count=-1 action=hang",
            "name=a/b action=hang",
            "name= action=hang",
        ] {
            assert!(spec(text).and_then(|spec| spec.rule("fault1")).is_err(), "{text}");
        }
    }

    /// Words that are nearly right, so that most of a rule is reached.
    fn words() -> impl Strategy<Value = String> {
        prop_oneof![
            "(op|range|nth|ratio|count|seed|action|name)=[a-z0-9:/+-]{0,12}",
            "action=(error|delay|hang|fail-at|stop-at|corrupt|torn|misdirect|lost-flush|zone|power-cut):?[0-9a-zA-Z]{0,22}",
            "range=[0-9]{1,20}[KMGT]?\\+[0-9]{1,20}[KMGT]?",
            "ratio=[0-9]{0,11}/[0-9]{0,11}",
            ".{0,24}",
        ]
    }

    proptest! {
        #[test]
        fn any_words_are_a_rule_or_refused(words in proptest::collection::vec(words(), 0..6)) {
            let limits = Limits::new(emulation::Sectors(1 << 20), emulation::Sectors(8), emulation::Sectors(8));
            if let Ok(spec) = FaultSpec::parse(&words)
                && let Ok(rule) = spec.checked("fault1", &limits)
            {
                prop_assert_eq!(FaultSpec::from(&rule).checked("other", &limits).unwrap().op, rule.op);
                // As the API carries it.
                let json = serde_json::to_string(&spec).unwrap();
                prop_assert_eq!(serde_json::from_str::<FaultSpec>(&json).unwrap(), spec);
            }
        }
    }
}
