package plugin

// AnswerHosts is answerHosts, for tests.
var AnswerHosts = answerHosts
