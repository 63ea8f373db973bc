"""What Memline knows about everyday words: which say nothing, and which say the same.

Measured on questions over long conversations: dropping stop words is worth 0.01 of recall at six; the forms
and companions below, at a third of the weight of the word itself, another 0.01 (at ten results as well).
Porter stemming, which SQLite does, joins `walk` and `walking` but not `buy` and `bought`.
"""

from __future__ import annotations

from functools import lru_cache


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


ENGLISH_STOP_WORDS = _listed(
    """
    a about above after again against all am an and any are aren as at be because been before being below
    between both but by can cannot could couldn d did didn do does doesn doing don down during each few for
    from further had hadn has hasn have haven having he her here hers herself him himself his how i if in
    into is isn it its itself just let ll m me more most mustn my myself no nor not now of off on once only
    or other ought our ours ourselves out over own re s same shan she should shouldn so some such t than
    that the their theirs them themselves then there these they this those through to too under until up ve
    very was wasn we were weren what when where which while who whom why will with won would wouldn you your
    yours yourself yourselves
    """
)

#: Applied only when a question has more of these than English ones: `die` and `war` are content in English.
FOREIGN_STOP_WORDS = {
    "de": _listed(
        """
        aber als am an auch auf aus bei bin bis da das dass dem den der des die dir du ein eine einem einen
        einer er es für haben hat hatte ich ihr im in ist ja kann mein mir mit nach nicht noch nur ob oder
        sich sie sind so über um und uns von vor war waren warum was wann wenn wer wie wir wird wo zu zum zur
        """
    ),
    "fr": _listed(
        """
        à au aux avec ce ces cette comment dans de des du elle en est et eu il ils j je l la le les leur lui
        ma mais me mes moi mon ne nos notre nous on ou où par pas pour pourquoi qu quand que quel quelle qui
        quoi sa se ses son sont sur ta te tes toi ton tu un une vos votre vous y été était
        """
    ),
    "es": _listed(
        """
        a al como cómo con cual cuál cuando cuándo de del desde dónde donde e el ella en era es esa ese esta
        este fue ha hay la las le les lo los me mi mis muy no nos o para pero por porque qué que quién quien
        se si sin sobre son su sus te tu un una y ya yo
        """
    ),
    "pt": _listed(
        """
        a ao aos as com como da das de do dos e ela ele em era essa esse esta este eu foi há já mais mas me
        meu minha na nas no nos não o onde os ou para pela pelo por porque quando que quem qual se sem ser seu
        sua são também te tem um uma você
        """
    ),
    "it": _listed(
        """
        a ai al alla anche che chi ci come con cosa da dal de dei del della delle di dove e ed era gli ha ho i
        il in io la le lo ma mi mio nel nella non o per perché più qual quale quando se si sono su sul tra tu
        un una uno è
        """
    ),
}

#: Irregular forms, a word and its forms a line.
_FORMS = """
bear bore borne | become became | begin began begun | bind bound | bite bit bitten | blow blew blown
break broke broken | breed bred | bring brought | build built | buy bought | catch caught
choose chose chosen | come came | deal dealt | dig dug | draw drew drawn | drink drank drunk
drive drove driven | eat ate eaten | fall fell fallen | feed fed | feel felt | fight fought | find found
flee fled | fly flew flown | forget forgot forgotten | forgive forgave forgiven | freeze froze frozen
get got gotten | give gave given | go went gone | grow grew grown | hang hung | hear heard
hide hid hidden | hold held | keep kept | know knew known | lay laid | lead led | learn learnt
leave left | lend lent | lie lay lain | light lit | lose lost | make made | mean meant | meet met
pay paid | ride rode ridden | ring rang rung | rise rose risen | run ran | say said | see saw seen
seek sought | sell sold | send sent | shake shook shaken | shine shone | shoot shot | show shown
shrink shrank shrunk | sing sang sung | sink sank sunk | sit sat | sleep slept | slide slid
speak spoke spoken | spend spent | spin spun | spring sprang | stand stood | steal stole stolen
stick stuck | strike struck | swear swore sworn | sweep swept | swim swam swum | take took taken
teach taught | tear tore torn | tell told | think thought | throw threw thrown
understand understood | wake woke woken | wear wore worn | weave wove woven | win won | wind wound
write wrote written | child children | foot feet | knife knives | leaf leaves | life lives | man men
mouse mice | person people | tooth teeth | wife wives | woman women | good better best | bad worse worst
"""

#: Words that often stand for each other in notes; a word may be in several groups.
_COMPANIONS = """
job work career profession occupation | buy purchase get | child kid son daughter | movie film
car vehicle | doctor physician medical appointment checkup | husband wife spouse partner marry | sick ill
begin start | finish complete end | big large huge | photo picture image pic
trip travel vacation journey visit | holiday vacation | friend buddy pal | mother mom mum | father dad
parent mom dad | pet dog cat | happy glad joy | sad upset | house home apartment | fix repair
error failure bug exception | delete remove drop | create make build | meal food dinner lunch
study learn course class | fear afraid scare | gift present | university college | money cash
phone mobile | choose pick | hurt injure injury | hobby interest enjoy | like love enjoy favorite
favorite favourite | help assist support | goal aim plan | idea plan | die death pass | country abroad
music song band concert | book novel read | exercise workout gym | teacher teach lesson
talk discuss chat | decide decision choose | reason because | feel emotion | attend go join
birthday born | sibling brother sister | charity fundraise donate | config configuration setting
database db | deploy deployment release rollout | repo repository | auth authentication login
"""


@lru_cache(maxsize=1)
def _groups() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for group in (_FORMS + "|" + _COMPANIONS).replace("\n", "|").split("|"):
        members = group.split()
        for member in members:
            table.setdefault(member, {}).update(dict.fromkeys(members))
    return {word: tuple(other for other in others if other != word) for word, others in table.items()}


def related(word: str) -> tuple[str, ...]:
    """Other forms and companions of a lower-case word; empty for most."""
    groups = _groups()
    for form in _plain_forms(word):
        if form in groups:
            return tuple(other for other in groups[form] if other != word)
    return ()


def _plain_forms(word: str) -> list[str]:
    """`word` and what it may be an ordinary ending of: walks, walked, walking, making, running, studies."""
    forms = [word]
    if word.endswith("ies") and len(word) > 4:
        forms.append(word[:-3] + "y")
    for ending in ("ing", "ed", "es", "s"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3:
            forms += [stem, stem + "e"]
            if stem[-1] == stem[-2]:
                forms.append(stem[:-1])
    return forms


def stop_words(words: list[str]) -> frozenset[str]:
    """The stop words that apply to a question of these lower-case words."""
    english = sum(word in ENGLISH_STOP_WORDS for word in words)
    if not words or len(words) == english:
        return ENGLISH_STOP_WORDS
    count, language = max(
        (sum(word in listed for word in words), name) for name, listed in FOREIGN_STOP_WORDS.items()
    )
    if count > max(1, english):
        return FOREIGN_STOP_WORDS[language]
    return ENGLISH_STOP_WORDS
