//! Plots as SVG. Every mark says in the document what it stands for (`data-series`, `data-x`, `data-y`), so that a reader,
//! or a test, need not measure a picture.

use crate::experiment::outcome::{Origin, Plot, Scale, Series};
use std::fmt::Write;

/// The picture, and the part of it that the axes enclose.
const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 800.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 326.0;
/// A character of a label takes about so much.
const CHARACTER: f64 = 6.6;
/// The distance of the lines of a label.
const LINE: f64 = 14.0;

/// Colours that people who see few can tell apart (Okabe and Ito), the palest left out.
pub(super) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444"];

/// The colour of a series by its place.
pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// How a line is broken: what was published, and what comes after the last colour, is.
pub(super) fn dashes(index: usize, origin: Origin) -> &'static str {
    match (origin, index / COLOURS.len()) {
        (Origin::Published, _) => "2 4",
        (Origin::Measured | Origin::Simulated, 0) => "none",
        (Origin::Measured | Origin::Simulated, _) => "9 4",
    }
}

/// A number for people: three digits that count, and no power of ten.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size == 0.0 => 0,
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => (2.0 - size.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Text as HTML has it.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A run of values on a line of the picture.
struct Line {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Line {
    fn new(scale: Scale, values: &[f64], (from, to): (f64, f64)) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match scale {
            // Whole steps of 1, 2 or 5; at least one value is above 0, or there is nothing to see.
            Scale::Linear => (0.0, if most > 0.0 { (most / step(most)).ceil() * step(most) } else { 1.0 }),
            Scale::Log if least <= 0.0 || !least.is_finite() => (0.1, 1.0),
            Scale::Log if most / least < 1.5 => (least / 2.0, most * 2.0),
            Scale::Log => (least / 1.15, most * 1.15),
            Scale::Categories => (-0.5, values.len() as f64 - 0.5),
        };
        Self { scale, low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear | Scale::Categories => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Values to write at the axis.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Categories => (0..(self.high + 0.5) as usize).map(|at| at as f64).collect(),
            Scale::Linear => {
                let step = step(self.high);
                (0..=(self.high / step).round() as u32).map(|at| f64::from(at) * step).collect()
            }
            Scale::Log => {
                let decades = (self.high / self.low).log10();
                let within: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
                (first..=last)
                    .flat_map(|power| within.iter().map(move |n| n * 10f64.powi(power)))
                    .filter(|value| (self.low..=self.high).contains(value))
                    .collect()
            }
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten, of which four to ten reach `most`.
fn step(most: f64) -> f64 {
    let power = 10f64.powf((most / 5.0).log10().floor());
    let times = most / 5.0 / power;
    power
        * if times > 5.0 {
            10.0
        } else if times > 2.0 {
            5.0
        } else if times > 1.0 {
            2.0
        } else {
            1.0
        }
}

/// A plot as an SVG element.
pub(super) fn draw(plot: &Plot) -> String {
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let xs: Vec<f64> = match plot.x.scale {
        Scale::Categories => (0..plot.categories.len()).map(|at| at as f64).collect(),
        Scale::Linear | Scale::Log => points().map(|point| point.x).collect(),
    };
    let ys: Vec<f64> = points().flat_map(|point| [point.low, point.high]).filter(|y| *y > 0.0).collect();
    let x = Line::new(plot.x.scale, &xs, (LEFT, RIGHT));
    let y = Line::new(plot.y.scale, &ys, (BOTTOM, TOP));
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&plot.title)
    );
    let _ = writeln!(
        svg,
        "<text class=\"axis y\" data-unit=\"{}\" x=\"4\" y=\"16\">{}</text>",
        escaped(&plot.y.unit),
        escaped(&plot.y.title())
    );
    let _ = writeln!(
        svg,
        "<text class=\"axis x\" data-unit=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        escaped(&plot.x.unit),
        f64::midpoint(LEFT, RIGHT),
        HEIGHT - 8.0,
        escaped(&plot.x.title())
    );
    axes(&mut svg, plot, &x, &y, &xs);
    for (index, series) in plot.series.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<g class=\"series\" data-series=\"{}\" data-origin=\"{}\">",
            escaped(&series.name),
            series.origin.name()
        );
        match plot.x.scale {
            Scale::Categories => bars(&mut svg, plot, index, series, &x, &y),
            Scale::Linear | Scale::Log => curve(&mut svg, plot, index, series, &x, &y),
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>");
    svg
}

fn axes(svg: &mut String, plot: &Plot, x: &Line, y: &Line, xs: &[f64]) {
    for tick in y.ticks() {
        let at = y.place(tick);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>");
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            number(tick)
        );
    }
    // On a log axis the values that were measured are written, if there is room.
    let mut ticks = if plot.x.scale == Scale::Log { xs.to_vec() } else { x.ticks() };
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let mut end = f64::NEG_INFINITY;
    for tick in ticks {
        let at = x.place(tick);
        let lines: Vec<String> = match plot.categories.get(tick as usize) {
            Some(name) => wrapped(name, (RIGHT - LEFT) / plot.categories.len() as f64),
            None => vec![number(tick)],
        };
        let half = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as f64 * CHARACTER / 2.0;
        let _ = writeln!(svg, "<path class=\"mark\" d=\"M{at:.1} {BOTTOM}v5\"/>");
        if at - half < end {
            continue;
        }
        end = at + half + 6.0;
        for (row, line) in lines.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 20.0 + row as f64 * LINE,
                escaped(line)
            );
        }
    }
    let _ = writeln!(svg, "<path class=\"frame\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>");
}

/// A label in lines of words that fit.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let most = (width / CHARACTER) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_string()),
        }
    }
    lines
}

/// What a mark stands for, for machines and for who points at it.
fn meaning(plot: &Plot, series: &Series, x: f64, y: f64) -> (String, String) {
    let place = plot.categories.get(x as usize).cloned().unwrap_or_else(|| number(x));
    let unit = |unit: &str| if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let title =
        format!("{}, {place}{}: {}{}", series.name, unit(&plot.x.unit), number(y), unit(&plot.y.unit));
    (format!("data-x=\"{}\" data-y=\"{y}\"", escaped(&place)), escaped(&title))
}

fn spread(svg: &mut String, at: f64, y: &Line, (low, high): (f64, f64), colour: &str) {
    if high > low {
        let (low, high) = (y.place(low), y.place(high));
        let _ =
            writeln!(svg, "<path class=\"spread\" stroke=\"{colour}\" d=\"M{at:.1} {low:.1}V{high:.1}\"/>");
    }
}

fn curve(svg: &mut String, plot: &Plot, index: usize, series: &Series, x: &Line, y: &Line) {
    let (colour, dashes) = (colour(index), dashes(index, series.origin));
    let places: Vec<_> = series
        .points
        .iter()
        .map(|point| format!("{:.1},{:.1}", x.place(point.x), y.place(point.y)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline class=\"curve\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" points=\"{}\"/>",
        places.join(" ")
    );
    for point in &series.points {
        let at = x.place(point.x);
        spread(svg, at, y, (point.low, point.high), colour);
        let (data, title) = meaning(plot, series, point.x, point.y);
        let _ = writeln!(
            svg,
            "<circle {data} cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{title}</title></circle>",
            y.place(point.y)
        );
    }
}

fn bars(svg: &mut String, plot: &Plot, index: usize, series: &Series, x: &Line, y: &Line) {
    let slot = (RIGHT - LEFT) / plot.categories.len() as f64;
    let width = slot * 0.8 / plot.series.len() as f64;
    for point in &series.points {
        let left = x.place(point.x) - slot * 0.4 + width * index as f64;
        let top = y.place(point.y);
        let (data, title) = meaning(plot, series, point.x, point.y);
        let _ = writeln!(
            svg,
            "<rect {data} x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{title}\
             </title></rect>",
            width - 1.0,
            (BOTTOM - top).max(0.0),
            colour(index)
        );
        spread(svg, left + width / 2.0, y, (point.low, point.high), "#000000");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_steps_are_round() {
        for (value, text) in
            [(0.0, "0"), (1234.6, "1235"), (12.34, "12.3"), (1.0, "1"), (0.004_56, "0.00456"), (4.0, "4")]
        {
            assert_eq!(number(value), text);
        }
        for (most, expected) in [(10.0, 2.0), (1.0, 0.2), (7.8, 2.0), (120.0, 50.0), (51.0, 20.0)] {
            assert!((step(most) - expected).abs() < 1e-9, "{most}: {}", step(most));
        }
    }

    #[test]
    fn labels_are_wrapped_at_words() {
        assert_eq!(wrapped("two tasks, depth 1", 80.0), ["two tasks,", "depth 1"]);
        assert_eq!(wrapped("unbreakable", 10.0), ["unbreakable"]);
    }
}
