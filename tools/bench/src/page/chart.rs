//! Chart of a figure: a line for each row, and on it a mark for each value, on a logarithmic scale.

use std::fmt::Write;

use super::escape::escaped;
use super::figure::Figure;

/// Draws the chart as SVG; nothing if there is no positive value.
pub fn draw(figure: &Figure) -> String {
    let values = figure.rows.iter().flat_map(|row| &row.cells).filter_map(|cell| cell.value);
    let positive: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).collect();
    let least = positive.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = positive.iter().copied().fold(0.0, f64::max);
    if positive.is_empty() {
        return String::new();
    }
    let scale = Scale::new(least, greatest);
    let height = TOP + figure.rows.len() * LINE + BOTTOM;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&figure.title)
    );
    for power in scale.first..=scale.last {
        let x = scale.place(10_f64.powi(power));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{}\">{} {}</text>",
            height - BOTTOM,
            height - 8,
            10_f64.powi(power),
            escaped(&figure.unit)
        );
    }
    legend(&mut svg, &figure.series);
    for (line, row) in figure.rows.iter().enumerate() {
        let y = TOP + line * LINE + LINE / 2;
        let _ = writeln!(
            svg,
            "<text class=\"row\" x=\"{}\" y=\"{}\">{}</text>\
             <line class=\"rule\" x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\"/>",
            LEFT - 10,
            y + 4,
            escaped(&row.label),
            WIDTH - RIGHT
        );
        // The first of the series lie on top.
        for (index, cell) in row.cells.iter().enumerate().rev() {
            let Some(value) = cell.value.filter(|value| *value > 0.0 && value.is_finite()) else {
                continue;
            };
            let name = figure.series.get(index).map_or("", String::as_str);
            let detail =
                if cell.detail.is_empty() { String::new() } else { format!(" ({})", cell.detail) };
            let told = format!("{}, {name}: {} {}{detail}", row.label, cell.text, figure.unit);
            let _ = writeln!(
                svg,
                "<circle class=\"mark series-{}\" cx=\"{:.1}\" cy=\"{y}\" r=\"5\"><title>{}</title></circle>",
                index % COLOURS,
                scale.place(value),
                escaped(&told)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, series: &[String]) {
    let mut x = LEFT;
    for (index, name) in series.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<circle class=\"series-{}\" cx=\"{x}\" cy=\"14\" r=\"5\"/><text class=\"legend\" x=\"{}\" y=\"18\">{}</text>",
            index % COLOURS,
            x + 9,
            escaped(name)
        );
        x += 26 + 7 * name.chars().count();
    }
}

/// Powers of ten between which all values lie.
struct Scale {
    first: i32,
    last: i32,
}

impl Scale {
    fn new(least: f64, greatest: f64) -> Self {
        let first = least.log10().floor() as i32;
        Self { first, last: (greatest.log10().ceil() as i32).max(first + 1) }
    }

    /// Distance of a value from the left.
    fn place(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.first)) / f64::from(self.last - self.first);
        LEFT as f64 + share * (WIDTH - LEFT - RIGHT) as f64
    }
}

const WIDTH: usize = 960;
const LEFT: usize = 340;
const RIGHT: usize = 30;
const TOP: usize = 34;
const BOTTOM: usize = 30;
const LINE: usize = 22;
/// Number of colours that the style has.
const COLOURS: usize = 8;
