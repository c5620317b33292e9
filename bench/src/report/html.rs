//! The page of a report. It loads nothing and runs nothing.

use super::svg::{colour, dashes, draw, escaped, number};
use super::{Prediction, Report};
use crate::experiment::outcome::{Latency, Model, Plot, Value};
use std::fmt::Write;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;color:#1a1a1a;background:#fff;max-width:60rem;margin:2rem auto;\
padding:0 1rem}\
h1{font-size:1.5rem;margin-bottom:0}h2{font-size:1.15rem;margin:2rem 0 .5rem}\
.about{margin-top:0;color:#444}\
table{border-collapse:collapse;font-size:.85rem;margin:.5rem 0}\
th,td{text-align:left;padding:.2rem .7rem .2rem 0;border-bottom:1px solid #ddd;vertical-align:top}\
td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\
figure{margin:1.5rem 0}figcaption{font-weight:600}\
svg{width:100%;height:auto;font:11px system-ui,'DejaVu Sans',sans-serif}\
svg .axis{font-size:12px;fill:#333}svg .tick{fill:#555}\
.grid{stroke:#e4e4e4}.frame{stroke:#777;fill:none}.mark{stroke:#777}\
.curve{fill:none;stroke-width:2}.spread{stroke-width:1.5;opacity:.7}\
ul.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;margin:.3rem 0;padding:0;font-size:.85rem}\
ul.legend svg{width:26px;height:10px;margin-right:.4rem}\
.origin{color:#555;font-size:.8rem}\
details{margin:.5rem 0}summary{cursor:pointer;color:#333}\
code{overflow-wrap:anywhere}";

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    let _ = writeln!(
        html,
        "<title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        escaped(report.experiment)
    );
    let _ = writeln!(html, "<h1>{}</h1>", escaped(report.experiment));
    let origins: Vec<_> = report.origins().into_iter().map(|origin| origin.name()).collect();
    let _ = writeln!(
        html,
        "<p class=\"about\">{}. Numbers in the plots are {}.</p>",
        escaped(&sentence(report.about)),
        origins.join(" and ")
    );
    report.outcome.plots.iter().for_each(|plot| figure(&mut html, plot));
    predictions(&mut html, &report.predictions);
    if let Some(model) = &report.outcome.model {
        of_model(&mut html, model);
    }
    latencies(&mut html, &report.outcome.latencies);
    values(&mut html, &report.outcome.values);
    for note in &report.outcome.notes {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escaped(note));
    }
    run(&mut html, report);
    html.push_str("</body>\n</html>\n");
    html
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn figure(html: &mut String, plot: &Plot) {
    let _ = writeln!(html, "<figure id=\"{}\">\n<figcaption>{}</figcaption>", plot.id, escaped(&plot.title));
    html.push_str("<ul class=\"legend\">");
    for (index, series) in plot.series.iter().enumerate() {
        let _ = write!(
            html,
            "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path d=\"M0 5H26\" stroke=\"{}\" stroke-width=\"4\" \
             stroke-dasharray=\"{}\"/></svg>{} <span class=\"origin\">{}</span></li>",
            colour(index),
            dashes(index, series.origin),
            escaped(&series.name),
            series.origin.name()
        );
    }
    let _ = writeln!(html, "</ul>\n{}", draw(plot));
    html.push_str("<details><summary>Every point</summary>\n<table><thead><tr>");
    let heads =
        ["series".into(), "from".into(), plot.x.title(), plot.y.title(), "lowest".into(), "highest".into()];
    heads.iter().for_each(|head: &String| {
        let _ = write!(html, "<th>{}</th>", escaped(head));
    });
    html.push_str("</tr></thead><tbody>\n");
    for series in &plot.series {
        for point in &series.points {
            let place = plot.categories.get(point.x as usize).cloned().unwrap_or_else(|| number(point.x));
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{}</td></tr>",
                escaped(&series.name),
                series.origin.name(),
                escaped(&place),
                number(point.y),
                number(point.low),
                number(point.high)
            );
        }
    }
    html.push_str("</tbody></table></details>\n</figure>\n");
}

fn predictions(html: &mut String, predictions: &[Prediction]) {
    if predictions.is_empty() {
        return;
    }
    html.push_str(
        "<h2>Predictions</h2>\n<table id=\"predictions\"><thead><tr><th>setting</th><th>simulated</th>\
         <th>published</th><th>error</th><th>source</th></tr></thead><tbody>\n",
    );
    for Prediction { id, what, unit, published, predicted, error_percent, source } in predictions {
        let _ = writeln!(
            html,
            "<tr id=\"{}\"><td>{}</td><td class=\"n\">{} {unit}</td><td class=\"n\">{} {unit}</td>\
             <td class=\"n\">{error_percent:+.0} %</td><td>{}</td></tr>",
            escaped(id),
            escaped(what),
            number(*predicted),
            number(*published),
            escaped(source)
        );
    }
    html.push_str("</tbody></table>\n");
}

fn of_model(html: &mut String, model: &Model) {
    let _ = writeln!(html, "<h2>Model</h2>\n<p>{}</p>", escaped(model.about));
    if model.free.is_empty() {
        html.push_str("<p id=\"free\">Free parameters: none.</p>\n");
        return;
    }
    let free: Vec<_> =
        model.free.iter().map(|free| format!("{} {} {}", free.name, number(free.value), free.unit)).collect();
    let _ = writeln!(
        html,
        "<p id=\"free\">Free parameters: {}. Set from one published point: {}.</p>",
        escaped(&free.join(", ")),
        escaped(model.set_from)
    );
}

fn latencies(html: &mut String, latencies: &[Latency]) {
    if latencies.is_empty() {
        return;
    }
    html.push_str(
        "<h2>Latency</h2>\n<table id=\"latency-table\"><thead><tr><th>of</th><th>from</th><th>count</th>",
    );
    for name in Latency::PERCENTILES {
        let _ = write!(html, "<th>{name} (us)</th>");
    }
    html.push_str("<th>histogram: up to (us): count</th></tr></thead><tbody>\n");
    for latency in latencies {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td>",
            escaped(&latency.of),
            latency.origin.name(),
            latency.count
        );
        for value in latency.percentiles {
            let _ = write!(html, "<td class=\"n\">{}</td>", number(value));
        }
        let classes = latency.classes.iter().filter(|class| class.1 > 0);
        let classes: Vec<_> = classes.map(|(to, count)| format!("{}: {count}", number(*to))).collect();
        let _ = writeln!(html, "<td>{}</td></tr>", classes.join(", "));
    }
    html.push_str("</tbody></table>\n");
}

fn values(html: &mut String, values: &[Value]) {
    if values.is_empty() {
        return;
    }
    html.push_str(
        "<h2>Ledger and results</h2>\n<details><summary>What was counted, and how copies ended</summary>\n<table id=\"ledger\"><thead><tr>\
         <th>of</th><th>what</th><th>value</th><th>from</th></tr></thead><tbody>\n",
    );
    for Value { of, what, value, unit, origin } in values {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{} {unit}</td><td>{}</td></tr>",
            escaped(of),
            escaped(what),
            escaped(value),
            origin.name()
        );
    }
    html.push_str("</tbody></table></details>\n");
}

fn run(html: &mut String, report: &Report) {
    html.push_str("<h2>Run</h2>\n<table id=\"run\"><tbody>\n");
    let machine = &report.machine;
    let parameters: Vec<_> =
        report.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let rows = [
        ("command", format!("<code>{}</code>", escaped(&machine.command))),
        ("version", format!("{}, commit {}", machine.version, escaped(machine.commit))),
        ("kernel", format!("{}, {} processors", escaped(&machine.kernel), machine.cpus)),
        ("seed", report.seed.map_or("none: nothing is left to chance".to_string(), |seed| seed.to_string())),
        ("rounds", report.rounds.to_string()),
        ("parameters", format!("<code>{}</code>", escaped(&parameters.join(" ")))),
        ("took", report.took()),
    ];
    for (name, text) in rows {
        let _ = writeln!(html, "<tr><th>{name}</th><td>{text}</td></tr>");
    }
    html.push_str("</tbody></table>\n");
}
