"""What people say, and what tools call it: words that a question and a description may use for the same thing."""

import re
from collections import defaultdict
from collections.abc import Mapping

from rookery.gateway.searching_words import stem

# What is said in several words or for short, and the words that stand for it.
_SAID = {
    "api": "api endpoint",
    "app": "application app",
    "ci": "ci check status build",
    "config": "configuration config",
    "db": "database",
    "dir": "directory",
    "docs": "documentation",
    "env": "environment",
    "get rid of": "delete",
    "go to": "navigate",
    "how big": "size",
    "how long": "duration time",
    "how many": "count number",
    "how much": "amount size",
    "js": "javascript",
    "k8s": "kubernetes",
    "log in": "login",
    "log out": "logout",
    "look at": "view",
    "look for": "search",
    "look up": "search",
    "mr": "merge request",
    "ocr": "text image recognize",
    "pic": "picture",
    "popup": "dialog",
    "pr": "pull request",
    "prs": "pull requests",
    "repo": "repository",
    "repos": "repositories",
    "set up": "create",
    "sign in": "login",
    "sign up": "register",
    "step by step": "sequential steps",
    "take out": "remove",
    "todo": "task",
    "ts": "typescript",
    "up to date": "update latest",
    "who wrote": "author",
}
# Each line is a group of words that mean nearly the same where tools are concerned.
_GROUPS = """
account user member profile person people author developer contact
add append insert attach put
aggregate group summarize sum total
alert dialog prompt confirm
answer reply respond comment
apply deploy install rollout release
approve accept confirm review
archive compress zip gzip pack
aside stash shelve
ask query question
attach upload
audio sound music
branch fork
browser chrome web page
browse navigate visit open
bug issue ticket defect error problem
button element
cancel abort stop
card payment
change update edit modify alter replace rewrite patch set
chat message conversation
check verify validate test lint audit inspect
clone copy duplicate fork download
close shut end quit finish
column field property attribute
command shell terminal exec bash
comment note remark reply
compare diff difference contrast
company organization business firm
complete done finish finished
connect link join relate relation relationship edge
container pod docker
content text body inside
convert transform translate
correlation relationship relation
count number amount
create make new add build generate produce register init initialize
css style
customer client user
dark light theme color
database sql table collection
date time day month year calendar
delete remove drop forget erase clear clean discard purge destroy uninstall
describe explain detail details
directory folder path
document file record
documentation manual reference guide
domain host address
download fetch get pull retrieve
drag move
draw plot chart graph diagram visualize visualise render generate
dropdown select option choose pick
dump export
email mail message inbox
entity node thing person object
environment variable setting
event meeting appointment calendar
everything all entire whole complete
fact observation note knowledge
fail error crash exception
file document
fill enter type input write
filter where query match
find search locate discover query
form field input
forward tunnel proxy reach
fresh new
go navigate
hierarchy tree structure
history log commits past
host server machine
hotel stay accommodation listing apartment flat room rental
image picture photo screenshot media
increase grow scale
info information metadata detail about
intersect overlap common
javascript script code
job task run
key keyboard press
label tag mark
language locale
last latest recent newest
line row
list show enumerate overview
load read open
log message console output
login auth sign authenticate
lost recover restore
map location place geo
mark tag label
market share proportion
memory heap leak
merge combine join integrate
mistake problem issue
mode theme media emulate
money price cost
month trend time
move rename relocate
name title
network request http call traffic
node machine server
notify alert message
number value numeric
open create start
order sort
page site website webpage url web
part slice piece proportion
performance speed slow slowly fast latency
permission access allowed allow permit
picture screenshot image
plan schedule
play run start
press click tap push hit
print show output return
process step stage
project repository
publish push release send
question query ask
read view show display get see open retrieve look
recent latest last new
record row entry document item
record capture trace
remember memory store knowledge recall save
report issue
restart rollout reload
reveal show
reviewer review
role permission
run execute evaluate perform invoke trigger
save write store persist
schema structure shape fields
screen display window viewport
send push upload post submit
service resource
share proportion percentage
size space big large small storage bytes smaller bigger
snapshot capture
start begin launch open
stop end terminate kill halt
store save create keep
subtitle caption transcript
switch select change toggle set
tab page
tell show
text string plain words content
thread conversation
tick check mark done
todo task item
touch change modify
undo revert reset rollback restore rollout
unfinished uncommitted
user account
version release tag
video screencast movie recording
wait until pause sleep
weather forecast temperature
website page url web site
word text term
yaml manifest
""".strip().splitlines()

_PHRASES = re.compile(rf"\b({'|'.join(sorted(map(re.escape, _SAID), key=len, reverse=True))})\b", re.IGNORECASE)


def spelled_out(question: str) -> str:
    """The question with what is said for short in the words that descriptions have."""
    return _PHRASES.sub(lambda found: _SAID[found[0].lower()], question)


def _alike() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for line in _GROUPS:
        group = {stem(word) for word in line.split()}
        for word in group:
            found[word] |= group - {word}
    return {word: frozenset(others) for word, others in found.items()}


# By the stem of a word: the stems of those that may stand for it.
ALIKE = _alike()
