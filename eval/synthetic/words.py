"""Word lists of the synthetic texts.

Almost every word is one token for the usual byte-pair vocabularies when a space precedes it, which lets
`layout.tokens` count without a tokenizer. The lists of names do not overlap: a person is never a town.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# People that facts are told about; the filler's people (EXTRAS) are others, so that it never speaks of these.
FIRST = _words("""
    Alice Arthur Amelia Anna Barbara Benjamin Caroline Charles Clara Daniel Deborah Dennis Dorothy Edgar
    Edith Edward Eleanor Elizabeth Emily Ernest Esther Frances Frank Frederick George Gerald Grace
    Gregory Hannah Harold Helen Henry Isaac Isabel Jacob James Jane Joan Jonathan Judith Julia Kenneth
    Laura Lawrence Leonard Linda Louise Lucy Margaret Martha Matthew Maurice Nancy Nicholas Oliver Oscar
    Patricia Peter Rachel Raymond Robert Ruth Samuel Sarah Simon Sophia Stanley Susan Theodore Thomas
    Timothy Victor Walter William""")
EXTRAS = _words("""
    Albert Andrew Anthony Bernard Catherine Charlotte Christopher Claire David Diana Edmund Ellen Emma
    Francis Gabriel Gilbert Harriet Herbert Hugh Janet Joseph Joshua Karen Katherine Luke Maria Marie
    Michael Nathan Norman Patrick Paul Philip Ralph Rebecca Richard Roger Rosa Sebastian Stephen Vincent
    Warren Winston""")
LAST = _words("""
    Adams Allen Anderson Andrews Armstrong Arnold Bailey Barnes Barrett Bennett Booth Bradley Brooks
    Bryant Burke Burns Campbell Chapman Clark Coleman Collins Cooper Crawford Cunningham Davidson Davis
    Dawson Dixon Duncan Edwards Elliott Ellis Evans Ferguson Fletcher Franklin Fraser Freeman Gibson
    Gordon Graham Griffin Hamilton Harper Harris Harrison Harvey Hayes Henderson Holmes Hopkins Hudson
    Hughes Jackson Jenkins Johnson Jones Kelly Kennedy Lambert Marshall Matthews Mitchell Moore Morgan
    Morris Morrison Murphy Murray Nelson Newman Patterson Pearson Perkins Phillips Pierce Powell Quinn
    Reynolds Roberts Robinson Rogers Russell Ryan Sanders Scott Shaw Simpson Smith Spencer Stevens
    Stewart Sullivan Taylor Thompson Turner Wallace Watson Webster Wheeler Williams Wilson Wright""")
TOWN = _words("""
    Bedford Belfast Birmingham Boston Bradford Bristol Buffalo Cambridge Canterbury Cardiff Charleston
    Chester Cleveland Concord Cornwall Dayton Denver Derby Dover Dublin Durham Edinburgh Exeter Geneva
    Glasgow Gloucester Greenwich Halifax Hampton Hartford Hastings Houston Kingston Lancaster Leeds
    Leicester Lexington Liverpool Manchester Milan Milton Monroe Newcastle Newport Norfolk Nottingham
    Oakland Oxford Plymouth Portland Portsmouth Princeton Providence Quincy Richmond Rochester Salem
    Salisbury Sheffield Somerset Southampton Springfield Sussex Troy Warwick Wellington Winchester
    Windsor Worcester York""")
TRADE = _words("""
    baker carpenter clerk cook doctor farmer gardener guard hunter inspector judge lawyer mechanic
    merchant nurse painter pilot poet printer sailor singer shepherd surgeon tailor teacher writer
    architect engineer photographer musician captain blacksmith librarian""")
OBJECT = _words("""
    clock lamp ladder basket barrel blanket bell bottle brush bucket button candle carpet chair chest
    coat compass cup curtain desk drum engine flag flute guitar hammer hat kettle knife lens map mirror
    needle pillow plate plow pot pump radio rope rug saddle saw shovel spoon stove sword telescope tent
    tool tray trunk violin wagon whistle vase banner""")
ANIMAL = _words("""
    dog cat horse goat sheep cow pig duck goose rabbit fox deer owl hawk crow sparrow eagle beaver frog
    turtle snake salmon trout donkey pony mouse squirrel""")
FOOD = _words("""
    bread cheese soup honey cabbage rice butter cake pie mustard jam spinach coffee tea milk salt pepper
    sugar flour corn fruit fish meat beer wine""")
PLACE = _words("""
    market church library station school bridge mill inn garden hospital theater museum bakery workshop
    warehouse chapel court square park castle tower barn stable bank office hall farm orchard forest
    lake canal island valley""")
MATERIAL = _words("""
    wood iron copper silver brass glass leather wool cotton silk paper stone clay marble bronze steel
    wax ivory linen rubber tin oak pine cedar maple""")
ADJECTIVE = _words("""
    old new small large heavy light narrow wide quiet noisy bright dark clean dusty broken famous simple
    careful cheap costly strange plain gentle proud patient cheerful tired busy curious stubborn polite""")
COLOR = _words("red blue green yellow brown black white gray purple pink golden")
WEATHER = _words("rain snow fog wind frost sunshine thunder hail heat mist")
NUMBER = _words("two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty")
DAY = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTH = _words("January February March April June July August September October November December")
EMBLEM = _words("""
    Apollo Atlas Bronze Cedar Comet Copper Coral Crystal Delta Eagle Falcon Harbor Iris Maple Nova Ocean
    Olive Orbit Pearl Raven Saturn Sierra Summit Tiger Willow""")  # names of ships, teams and papers
SETTING = _words("market church library station school bridge mill inn hospital museum court park tower bank office")
VERB = _words("paint repair move sell polish measure carry count wash store borrow burn lend weigh wrap")
PAST = _words("painted repaired moved sold polished measured carried counted washed stored borrowed weighed wrapped")
CRAFT = _words("painting cooking sewing fishing singing hunting printing building writing dancing riding swimming")

POOLS: dict[str, tuple[str, ...]] = {
    "extra": EXTRAS,
    "town": TOWN,
    "trade": TRADE,
    "object": OBJECT,
    "animal": ANIMAL,
    "food": FOOD,
    "place": PLACE,
    "material": MATERIAL,
    "adjective": ADJECTIVE,
    "color": COLOR,
    "weather": WEATHER,
    "number": NUMBER,
    "day": DAY,
    "month": MONTH,
    "verb": VERB,
    "past": PAST,
    "craft": CRAFT,
}
