# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pages, drawings and pictures."""

import random

from inputs.words import sentence


def page_pdf(rand: random.Random, words: list[str]) -> str:
    pages = 12
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(pages))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>",
    ]
    for i in range(pages):
        lines = "\n".join(f"({sentence(rand, words, 6, 9)}) Tj T*" for _ in range(50))
        curves = "\n".join(
            "{} {} m {} {} {} {} {} {} c S".format(*(rand.randrange(600) for _ in range(8)))
            for _ in range(400)
        )
        stream = f"BT /F1 10 Tf 14 TL 40 780 Td {lines} ET\n{curves}"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents "
            f"{5 + 2 * i} 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    return pdf_of(objects)


def pdf_of(objects: list[str]) -> str:
    text = "%PDF-1.4\n"
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(text))
        text += f"{number} 0 obj\n{body}\nendobj\n"
    rows = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    return (
        f"{text}xref\n0 {size}\n0000000000 65535 f \n{rows}"
        f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(text)}\n%%EOF\n"
    )


def page_man(rand: random.Random, words: list[str]) -> str:
    """Sections, tables and paragraphs for groff."""
    parts = [".TH WORDS 7"]
    for number in range(160):
        parts.append(f".SH\nSection {number}: {sentence(rand, words, 2, 5)}")
        parts += [f".PP\n{sentence(rand, words, 40, 120)}" for _ in range(6)]
        rows = "\n".join(
            "\t".join(sentence(rand, words, 1, 2) for _ in range(4)) for _ in range(12)
        )
        parts.append(f".TS\nallbox;\nl l l l.\n{rows}\n.TE")
    return "\n".join(parts) + "\n"


def drawing_svg(rand: random.Random, words: list[str]) -> str:
    shapes = []
    for i in range(1100):
        x, y = rand.randrange(1000), rand.randrange(800)
        style = f"fill:#{rand.randrange(1 << 24):06x};opacity:{rand.random():.2f}"
        shapes.append(f'<g style="{style}" transform="rotate({i % 360} {x} {y})">')
        shapes.append(f'<path d="M{x} {y} q 20 {i % 50} 40 0 t 30 10 z"/>')
        shapes.append(
            f'<text x="{x}" y="{y}" font-size="8">{sentence(rand, words, 1, 3)}</text></g>'
        )
    size = 'width="1000" height="800"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>' + "\n".join(shapes) + "</svg>\n"


def graph_dot(rand: random.Random, words: list[str]) -> str:
    edges = [
        f'  n{rand.randrange(i)} -> n{i} [label="{rand.choice(words)}"];' for i in range(1, 800)
    ]
    return "digraph g {\n" + "\n".join(edges) + "\n}\n"


def picture_ppm(rand: random.Random, _words: list[str]) -> str:
    rows = (" ".join(str(rand.randrange(256)) for _ in range(3 * 200)) for _ in range(150))
    return "P3 200 150 255\n" + "\n".join(rows) + "\n"
